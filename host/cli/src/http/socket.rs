//! The socket of the endpoint: on a TCP address, or on a path.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::net::listen;
use rustix::process::umask;

use crate::exit::{End, bad_input, say};
use crate::parse::Address;

/// Who may connect to a unix socket: its owner, and the socket's group.
const SOCKET_MODE: Mode = Mode::RUSR.union(Mode::WUSR).union(Mode::RGRP).union(Mode::WGRP);

/// How many connections the system keeps until they are taken.
const QUEUE: i32 = 1024;

/// A socket that is bound.
#[derive(Debug)]
pub struct Bound {
    pub socket: Socket,
    /// The host of its address; none on a unix socket.
    pub host: Option<String>,
    /// Of a unix socket.
    pub file: Option<SocketFile>,
}

/// The socket itself.
#[derive(Debug)]
pub enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
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
                // std asks for a shorter one. If this fails, that has to do.
                let _ = listen(&listener, QUEUE);
                if let (0, Ok(address)) = (*port, listener.local_addr()) {
                    say(&format!("the HTTP endpoint listens on {address}"));
                }
                let host = Some(host.clone());
                Ok(Self { socket: Socket::Tcp(listener), host, file: None })
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
        match UnixStream::connect(path) {
            // Left by a process that was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path)?;
            }
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            Ok(_) | Err(_) => return Err(io::Error::other("another process listens there")),
        }
    }
    // Nobody else may connect, not even before its mode could be changed.
    let mask = umask(!SOCKET_MODE & Mode::RWXU.union(Mode::RWXG).union(Mode::RWXO));
    let listener = UnixListener::bind(path);
    umask(mask);
    let listener = listener?;
    let file = SocketFile { path: path.into(), inode: inode(path) };
    Ok(Bound { socket: Socket::Unix(listener), host: None, file: Some(file) })
}

fn inode(path: &Path) -> Option<u64> {
    fs::symlink_metadata(path).ok().map(|metadata| metadata.ino())
}

impl Socket {
    /// For the present runtime.
    pub fn listener(self) -> io::Result<Listener> {
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(socket).map(Listener::Tcp)
            }
            Self::Unix(socket) => {
                socket.set_nonblocking(true)?;
                tokio::net::UnixListener::from_std(socket).map(Listener::Unix)
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
