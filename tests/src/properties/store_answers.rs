//! Whatever an etcd answers: the store says in time what it means, or that it means
//! nothing, and does not panic.
//!
//! The etcd is a server on the loopback that knows the forms of etcd's messages, and
//! fills them with anything.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use arbitrary::Result;
use bytes::Bytes as Data;
use http::{HeaderMap, HeaderValue, Request, Response as Http};
use incumbent::types::*;
use incumbent::{Credentials, EtcdStore, EtcdUrl, Store, admin};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use incumbent_simulation::properties::embedded::{Bytes, number, text};

/// How long a call may take.
const WITHIN: Duration = Duration::from_millis(200);
/// How long a call may take that renews, and that etcd has ended.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Asks an etcd that answers what the bytes say. Panics if the store does what it must not.
pub fn check(bytes: &[u8]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
    runtime.block_on(ask(bytes.to_vec()));
    runtime.shutdown_background();
}

async fn ask(bytes: Vec<u8>) {
    let etcd = Etcd::start(bytes).await;
    let url: EtcdUrl = etcd.url.parse().expect("is a URL");
    let Ok(store) = EtcdStore::connect(&url, &Credentials::default(), WITHIN).await else {
        return;
    };
    etcd.lie();
    let mut watches = store.watches();
    watches.open(Watch { id: 1, key: b"jobs/".into(), prefix: true, since: None });
    watches.open(Watch { id: 2, key: b"jobs/1".into(), prefix: false, since: Some(5) });
    for operation in operations() {
        let answer = timeout(TIMEOUT, store.call(operation.clone(), WITHIN)).await;
        let answer = answer.expect("it comes in time");
        if let Ok(response) = answer {
            check_response(&operation, &response);
        }
    }
    let _ = timeout(TIMEOUT, admin::get(&store, "jobs", WITHIN)).await.expect("it comes in time");
    let mut started = [false; 3];
    let mut ended = [false; 3];
    let news = async {
        loop {
            let Watched { id, change } = poll_fn(|context| watches.poll_next(context)).await;
            let id = usize::try_from(id).expect("is small");
            assert!(id == 1 || id == 2, "a watch that is open");
            assert!(!ended[id], "nothing after the end");
            match change {
                Change::Started(_) => {
                    assert!(!started[id], "it starts once");
                    started[id] = true;
                }
                Change::Put(_) | Change::Deleted(_) => assert!(started[id], "it has started"),
                Change::Ended(_) => ended[id] = true,
            }
        }
    };
    let _ = timeout(Duration::from_millis(5), news).await;
}

fn operations() -> Vec<Operation> {
    let selection = Selection { limit: 1, ..Selection::of_prefix("jobs/") };
    let guard = Guard { key: b"jobs/1".into(), epoch: 5, lease: Some(1) };
    vec![
        Operation::Grant(Grant { lease: 1, ttl: 2_000_000_000 }),
        Operation::Claim(Claim { key: b"jobs/1".into(), value: b"v".into(), lease: 1 }),
        Operation::Read(vec![selection.clone(), selection]),
        Operation::Read(Vec::new()),
        Operation::Guarded(Guarded {
            guard,
            expect: Vec::new(),
            mutations: vec![Mutation::Delete(b"jobs/1".into())],
        }),
        Operation::KeepAlive(1),
        Operation::KeepAlive(1),
        Operation::Revoke(1),
    ]
}

fn check_response(operation: &Operation, response: &Response) {
    use Response::*;
    match (operation, response) {
        (Operation::Grant(_), Granted(_) | Exists)
        | (Operation::KeepAlive(_), Renewed(1..) | Expired)
        | (Operation::Revoke(_), Revoked | Expired)
        | (Operation::Claim(_), Claimed(_) | Taken(_) | Expired)
        | (Operation::Guarded(_), Applied(_) | Stale | Conflict) => {}
        (Operation::Read(selections), Snapshot(snapshot)) => {
            assert_eq!(selections.len(), snapshot.found.len(), "an answer to each");
        }
        _ => panic!("{response:?} is no answer to {operation:?}"),
    }
}

// The etcd.

struct Etcd {
    url: String,
    answers: Arc<Mutex<Answers>>,
}

struct Answers {
    bytes: Vec<u8>,
    read: usize,
    lies: bool,
}

impl Etcd {
    async fn start(bytes: Vec<u8>) -> Etcd {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let url = format!("etcd://{}", listener.local_addr().expect("has one"));
        let lies = bytes.first().is_some_and(|byte| byte % 8 == 0);
        let answers = Arc::new(Mutex::new(Answers { bytes, read: 1, lies }));
        let shared = Arc::clone(&answers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Etcd { url, answers }
    }

    /// From now on; before, it is an etcd that one may connect to.
    fn lie(&self) {
        self.answers.lock().lies = true;
    }
}

async fn serve(stream: TcpStream, answers: Arc<Mutex<Answers>>) {
    let Ok(mut connection) = h2::server::handshake(stream).await else { return };
    while let Some(Ok((request, respond))) = connection.accept().await {
        let answer = answers.lock().next(&request);
        // The client may have gone.
        let _ = send(answer, respond);
    }
}

/// What is sent, and how the stream ends.
struct Answer {
    http: u16,
    data: Vec<u8>,
    end: Option<HeaderMap>,
}

fn send(
    answer: Answer,
    mut respond: h2::server::SendResponse<Data>,
) -> std::result::Result<(), h2::Error> {
    let response = Http::builder().status(answer.http).header("content-type", "application/grpc");
    let mut stream = respond.send_response(response.body(()).expect("is one"), false)?;
    stream.send_data(answer.data.into(), false)?;
    match answer.end {
        Some(trailers) => stream.send_trailers(trailers),
        None => {
            stream.send_reset(h2::Reason::INTERNAL_ERROR);
            Ok(())
        }
    }
}

impl Answers {
    fn next(&mut self, request: &Request<h2::RecvStream>) -> Answer {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        if self.lies {
            let rest = self.bytes.get(self.read..).unwrap_or_default();
            let mut bytes = Bytes::new(rest);
            let lie = lie(&mut bytes, method);
            self.read += rest.len() - bytes.len();
            if let Ok(lie) = lie {
                return lie;
            }
        }
        Answer { http: 200, data: framed(&[]), end: Some(status(0, "")) }
    }
}

fn lie(bytes: &mut Bytes<'_>, method: &str) -> Result<Answer> {
    let form = match method {
        "Range" => RANGE,
        "Txn" => TXN,
        "LeaseGrant" | "LeaseKeepAlive" => LEASE,
        "Watch" => WATCH,
        _ => HEADER,
    };
    let mut data = Vec::new();
    for _ in 0..bytes.int_in_range(0..=3)? {
        match bytes.int_in_range(0..=15)? {
            0 => data.extend(bytes.arbitrary::<Vec<u8>>()?),
            1 => data.extend(framed(&bytes.arbitrary::<Vec<u8>>()?)),
            _ => data.extend(framed(&message(bytes, form, 0)?)),
        }
    }
    let end = match bytes.int_in_range(0..=7)? {
        0 => None,
        1 | 2 => Some(status(bytes.int_in_range(0..=20)?, bytes.choose(&TEXTS)?)),
        3 => Some(status(bytes.int_in_range(0..=16)?, &text(bytes)?)),
        _ => Some(status(0, "")),
    };
    let http = if bytes.ratio(1, 16)? { bytes.int_in_range(200..=599)? } else { 200 };
    Ok(Answer { http, data, end })
}

const TEXTS: [&str; 8] = [
    "etcdserver: requested lease not found",
    "etcdserver: lease already exists",
    "etcdserver: too many requests",
    "etcdserver: request timed out",
    "etcdserver: permission denied",
    "etcdserver: invalid auth token",
    "etcdserver: mvcc: required revision has been compacted",
    "etcdserver: no leader",
];

fn status(code: u8, said: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", u16::from(code).into());
    if let Ok(said) = HeaderValue::from_bytes(said.as_bytes()) {
        trailers.insert("grpc-message", said);
    }
    trailers
}

/// A message as gRPC sends it.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("is short");
    [&[0], &length.to_be_bytes()[..], message].concat()
}

// etcd's messages: the numbers of their fields, and what is in them.

#[derive(Clone, Copy)]
enum Field {
    Number,
    Text,
    Message(Form),
    /// A transaction, in which there may be others.
    Transaction,
}

type Form = &'static [(u32, Field)];

use Field::{Message, Number, Text, Transaction};

static HEADER: Form =
    &[(1, Message(&[(1, Number), (2, Number), (3, Number), (3, Number), (4, Number)]))];
static KV: Form = &[(1, Text), (2, Number), (3, Number), (4, Number), (5, Text), (6, Number)];
static RANGE: Form =
    &[(1, Message(&[(3, Number)])), (2, Message(KV)), (2, Message(KV)), (4, Number)];
static TXN: Form = &[
    (1, Message(&[(3, Number)])),
    (2, Number),
    (3, Message(OPERATION)),
    (3, Message(OPERATION)),
    (3, Message(OPERATION)),
];
static OPERATION: Form =
    &[(1, Message(RANGE)), (2, Message(HEADER)), (3, Message(HEADER)), (4, Transaction)];
static LEASE: Form = &[(1, Message(&[(3, Number)])), (2, Number), (3, Number), (4, Text)];
static WATCH: Form = &[
    (1, Message(&[(3, Number)])),
    (2, Number),
    (3, Number),
    (4, Number),
    (5, Number),
    (6, Text),
    (7, Number),
    (11, Message(&[(1, Number), (2, Message(KV)), (3, Message(KV))])),
    (11, Message(&[(1, Number), (2, Message(KV))])),
];

/// Each field is there or not.
fn message(bytes: &mut Bytes<'_>, form: Form, depth: usize) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    for (field, kind) in form {
        if depth > 4 || bytes.ratio(1, 4)? {
            continue;
        }
        match kind {
            Number => {
                varint(&mut message, u64::from(field << 3));
                varint(&mut message, number(bytes)?.cast_unsigned());
            }
            Text => bytes_field(&mut message, *field, text(bytes)?.as_bytes()),
            Message(form) => {
                let inner = self::message(bytes, form, depth + 1)?;
                bytes_field(&mut message, *field, &inner);
            }
            Transaction => {
                let inner = self::message(bytes, TXN, depth + 1)?;
                bytes_field(&mut message, *field, &inner);
            }
        }
    }
    Ok(message)
}

fn bytes_field(message: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    varint(message, u64::from(field << 3 | 2));
    varint(message, bytes.len() as u64);
    message.extend(bytes);
}

fn varint(message: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        message.push((number & 0x7f | 0x80) as u8);
        number >>= 7;
    }
    message.push(number as u8);
}
