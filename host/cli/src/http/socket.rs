//! The socket of the endpoint: on a TCP address, or on a path.

use std::fs::{self, Permissions};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use crate::exit::{End, bad_input, say};
use crate::parse::Address;

/// Who may connect to a unix socket: its owner, and the socket's group.
const SOCKET_MODE: u32 = 0o660;

/// A socket that is bound.
#[derive(Debug)]
pub enum Bound {
    Tcp { listener: TcpListener, host: String },
    Unix { listener: UnixListener, file: SocketFile },
}

/// The file of a unix socket, which is removed at the end if it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    inode: Option<u64>,
}

/// The same socket, for the runtime.
#[derive(Debug)]
pub enum Listener {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Bound {
    pub fn new(address: &Address) -> Result<Self, End> {
        match address {
            Address::Tcp { host, port } => {
                let listener = TcpListener::bind((host.as_str(), *port)).map_err(|error| {
                    bad_input(format!(
                        "--listen {host}:{port} is not possible ({error}): give an address of this \
                         machine, and a port that is free and that we may use"
                    ))
                })?;
                if let (0, Ok(address)) = (*port, listener.local_addr()) {
                    say(&format!("the HTTP endpoint listens on {address}"));
                }
                Ok(Self::Tcp { listener, host: host.clone() })
            }
            Address::Unix(path) => bind_socket(path).map_err(|error| {
                bad_input(format!(
                    "--listen unix:{} is not possible ({error}): give a path in a directory where \
                     we may make it, and where nothing is in its place",
                    path.display()
                ))
            }),
        }
    }
}

fn bind_socket(path: &Path) -> io::Result<Bound> {
    if let Ok(metadata) = fs::symlink_metadata(path)
        && metadata.file_type().is_socket()
    {
        if UnixStream::connect(path).is_ok() {
            return Err(io::Error::other("another process listens there"));
        }
        // Left by a process that was killed.
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    let file = SocketFile { path: path.into(), inode: inode(path) };
    fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    Ok(Bound::Unix { listener, file })
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|metadata| metadata.ino())
}

impl Bound {
    /// For the present runtime, and the file that goes with it.
    pub fn listener(self) -> io::Result<(Listener, Option<SocketFile>)> {
        match self {
            Self::Tcp { listener, .. } => {
                listener.set_nonblocking(true)?;
                Ok((Listener::Tcp(tokio::net::TcpListener::from_std(listener)?), None))
            }
            Self::Unix { listener, file } => {
                listener.set_nonblocking(true)?;
                Ok((Listener::Unix(tokio::net::UnixListener::from_std(listener)?), Some(file)))
            }
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            // Left there, the next start removes it.
            let _ = fs::remove_file(&self.path);
        }
    }
}
