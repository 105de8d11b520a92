//! Links that can be cut, stalled and slowed: TCP relays in this process.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// From client to server.
    Requests,
    /// From server to client.
    Replies,
}

/// What a link does with what it is given. A cheap clone of the same link.
#[derive(Clone, Debug)]
pub struct Link {
    flow: Arc<watch::Sender<Flow>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// Which life the link is in; connections of an earlier one are closed.
    life: u64,
    /// Connections of an earlier age than this pass nothing on any more.
    age: u64,
    /// New connections are closed at once.
    refuses: bool,
    /// By way.
    stalled: [bool; 2],
    delay: Duration,
    /// Up to this much longer, differently for each piece, which never overtakes another.
    jitter: Duration,
}

impl Default for Link {
    fn default() -> Self {
        Self { flow: Arc::new(watch::Sender::new(Flow::default())) }
    }
}

/// What is stalled is kept, and goes on when it may.
impl Link {
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

    /// The connections that are there pass nothing on any more, and are not closed:
    /// as when a firewall in between has forgotten them. New ones work.
    pub fn freeze(&self) {
        self.flow.send_modify(|flow| flow.age += 1);
    }

    /// Holds back what the client sends, on new connections too.
    pub fn stall_requests(&self) {
        self.flow.send_modify(|flow| flow.stalled[Way::Requests as usize] = true);
    }

    /// Holds back what the server answers.
    pub fn stall_replies(&self) {
        self.flow.send_modify(|flow| flow.stalled[Way::Replies as usize] = true);
    }

    /// Takes connections, and says nothing, and passes nothing on.
    pub fn black_hole(&self) {
        self.flow.send_modify(|flow| flow.stalled = [true; 2]);
    }

    /// Lets everything through, what was held back first.
    pub fn flow(&self) {
        self.flow.send_modify(|flow| flow.stalled = [false; 2]);
    }

    /// From now on, every piece takes this long each way, and up to `jitter` longer.
    pub fn slow(&self, delay: Duration, jitter: Duration) {
        self.flow.send_modify(|flow| (flow.delay, flow.jitter) = (delay, jitter));
    }

    /// As new: everything passes, at once. What was held back comes first.
    pub fn heal(&self) {
        self.flow.send_modify(|flow| {
            *flow = Flow { life: flow.life, age: flow.age, ..Flow::default() };
        });
    }
}

/// A relay to one server. Needs a tokio runtime with more than one thread, or one
/// that is not blocked.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    link: Link,
    /// All connections end with it.
    _accepting: JoinSet<()>,
}

impl Relay {
    /// Opens a relay to `server` on a free port.
    pub async fn start(server: SocketAddr) -> Self {
        let link = Link::default();
        let of_all = link.clone();
        let carry = move |client| connect(client, Vec::new(), server, of_all.clone());
        let (address, _accepting) = listen(carry).await;
        Self { address, link, _accepting }
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// As `--store` takes it.
    pub fn url(&self) -> String {
        format!("etcd://{}", self.address)
    }
}

impl Deref for Relay {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.link
    }
}

/// A relay to the peer port of one etcd member, with a link for each of the others:
/// they say who they are in the head of each request.
#[derive(Debug)]
pub struct PeerRelay {
    address: SocketAddr,
    links: Arc<Mutex<BTreeMap<u64, Link>>>,
    /// All connections end with it.
    _accepting: JoinSet<()>,
}

impl PeerRelay {
    /// Opens a relay to the peer port of a member, on a free port.
    pub async fn start(member: SocketAddr) -> Self {
        let links = Arc::<Mutex<BTreeMap<u64, Link>>>::default();
        let of_all = Arc::clone(&links);
        let carry = move |mut client| {
            let links = Arc::clone(&of_all);
            async move {
                if let Some((head, from)) = introduction(&mut client).await {
                    connect(client, head, member, link(&links, from)).await;
                }
            }
        };
        let (address, _accepting) = listen(carry).await;
        Self { address, links, _accepting }
    }

    /// Where the other members connect to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The link for what the member of this id asks.
    pub fn link(&self, from: u64) -> Link {
        link(&self.links, from)
    }
}

fn link(links: &Mutex<BTreeMap<u64, Link>>, from: u64) -> Link {
    links.lock().entry(from).or_default().clone()
}

/// The head of the first request on a connection, and the member that it is from;
/// 0 where it does not say.
async fn introduction(client: &mut TcpStream) -> Option<(Vec<u8>, u64)> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if client.read_buf(&mut head).await.ok()? == 0 {
            return None;
        }
    }
    let text = String::from_utf8_lossy(&head);
    let from = text.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("x-server-from").then(|| u64::from_str_radix(value, 16).ok())?
    });
    let from = from.unwrap_or(0);
    Some((head, from))
}

/// Carries all connections to a free port, until the set is dropped.
async fn listen<F: Future<Output = ()> + Send + 'static>(
    carry: impl Fn(TcpStream) -> F + Send + 'static,
) -> (SocketAddr, JoinSet<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let mut accepting = JoinSet::new();
    accepting.spawn(async move {
        let mut carried = JoinSet::new();
        while let Ok((client, _)) = listener.accept().await {
            carried.spawn(carry(client));
            while carried.try_join_next().is_some() {}
        }
    });
    (address, accepting)
}

/// Carries one connection, whose first bytes were read already.
async fn connect(client: TcpStream, first: Vec<u8>, server: SocketAddr, link: Link) {
    let mut flow = link.flow.subscribe();
    let start = *flow.borrow();
    if start.refuses {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        biased;
        _ = flow.wait_for(|flow| flow.life != start.life) => {}
        () = copy(from_client, first, to_server, &link, Way::Requests, start) => {}
        () = copy(from_server, Vec::new(), to_client, &link, Way::Replies, start) => {}
    }
}

/// Until either end is closed.
async fn copy(
    from: tcp::OwnedReadHalf,
    first: Vec<u8>,
    to: tcp::OwnedWriteHalf,
    link: &Link,
    way: Way,
    start: Flow,
) {
    // Reading does not wait for writing: what is delayed is under way side by side.
    let (sender, pieces) = mpsc::unbounded_channel();
    tokio::join!(take(from, first, sender, link), give(pieces, to, link, way, start));
}

/// A piece of a stream, and when it is to arrive.
type Piece = (Instant, Vec<u8>);

async fn take(
    mut from: tcp::OwnedReadHalf,
    first: Vec<u8>,
    pieces: mpsc::UnboundedSender<Piece>,
    link: &Link,
) {
    let mut arrives = Instant::now();
    let mut buffer = first;
    loop {
        if !buffer.is_empty() {
            let Flow { delay, jitter, .. } = *link.flow.borrow();
            let late = delay + jitter.mul_f64(fastrand::f64());
            arrives = arrives.max(Instant::now() + late);
            if pieces.send((arrives, buffer)).is_err() {
                return;
            }
        }
        buffer = Vec::with_capacity(64 * 1024);
        tokio::select! {
            length = from.read_buf(&mut buffer) => match length {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            },
            () = pieces.closed() => return,
        }
    }
}

async fn give(
    mut pieces: mpsc::UnboundedReceiver<Piece>,
    to: tcp::OwnedWriteHalf,
    link: &Link,
    way: Way,
    start: Flow,
) {
    let mut flow = link.flow.subscribe();
    let passes = |flow: &Flow| {
        flow.life == start.life && flow.age == start.age && !flow.stalled[way as usize]
    };
    while let Some((arrives, bytes)) = pieces.recv().await {
        if arrives > Instant::now() {
            sleep_until(arrives).await;
        }
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            if to.writable().await.is_err() || flow.wait_for(passes).await.is_err() {
                return;
            }
            // The link cannot change while this writes, so nothing follows a change.
            let written = {
                let flow = flow.borrow();
                if passes(&flow) { to.try_write(rest) } else { Ok(0) }
            };
            match written {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}
