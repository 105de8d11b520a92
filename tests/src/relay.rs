//! A link that can be cut and stalled: a TCP relay in this process.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What the link does with what it is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Flow {
    /// Which life the link is in; connections of an earlier one are closed.
    life: u64,
    /// New connections are closed at once.
    refuses: bool,
    to_server: bool,
    to_client: bool,
}

/// A relay to one server. What is stalled is kept, and goes on when it may.
/// Needs a tokio runtime with more than one thread, or one that is not blocked.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    flow: Arc<watch::Sender<Flow>>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// Opens a relay to `server` on a free port.
    pub async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let flow = Arc::new(watch::Sender::new(Flow {
            life: 0,
            refuses: false,
            to_server: true,
            to_client: true,
        }));
        let accepting = tokio::spawn(accept(listener, server, Arc::clone(&flow)));
        Self { address, flow, accepting }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As `--store` takes it.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address)
    }

    /// Closes all connections; new ones are taken.
    pub fn cut(&self) {
        self.flow.send_modify(|flow| flow.life += 1);
    }

    /// Closes all connections, and each new one at once, until [`accept`].
    ///
    /// [`accept`]: Self::accept
    pub fn refuse(&self) {
        self.flow.send_modify(|flow| {
            flow.life += 1;
            flow.refuses = true;
        });
    }

    /// Takes new connections again.
    pub fn accept(&self) {
        self.flow.send_modify(|flow| flow.refuses = false);
    }

    /// Holds back what the client sends.
    pub fn stall_requests(&self) {
        self.flow.send_modify(|flow| flow.to_server = false);
    }

    /// Holds back what the server answers.
    pub fn stall_replies(&self) {
        self.flow.send_modify(|flow| flow.to_client = false);
    }

    /// Lets everything through, what was held back first.
    pub fn flow(&self) {
        self.flow.send_modify(|flow| {
            flow.to_server = true;
            flow.to_client = true;
        });
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, flow: Arc<watch::Sender<Flow>>) {
    while let Ok((client, _)) = listener.accept().await {
        let flow = flow.subscribe();
        if !flow.borrow().refuses {
            tokio::spawn(connect(client, server, flow));
        }
    }
}

async fn connect(client: TcpStream, server: SocketAddr, flow: watch::Receiver<Flow>) {
    let life = flow.borrow().life;
    let mut ends = flow.clone();
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        biased;
        _ = ends.wait_for(|flow| flow.life != life) => {}
        () = copy(from_client, to_server, flow.clone(), |flow| flow.to_server) => {}
        () = copy(from_server, to_client, flow, |flow| flow.to_client) => {}
    }
}

async fn copy(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut flow: watch::Receiver<Flow>,
    flows: impl Fn(&Flow) -> bool,
) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(length) => length,
        };
        if flow.wait_for(|flow| flows(flow)).await.is_err()
            || to.write_all(&buffer[..length]).await.is_err()
        {
            return;
        }
    }
}
