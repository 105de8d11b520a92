//! Members that are down or silent, and what is no etcd.

use incumbent::EtcdUrl;
use tokio::net::TcpListener;

use super::*;

on_each_version! {
    the_next_member_is_asked_where_one_is_down,
    the_next_member_is_asked_beside_one_that_is_silent,
    a_refusal_is_told_rather_than_a_member_that_is_down,
    an_etcd_that_does_not_answer_is_unreachable,
}

async fn the_next_member_is_asked_where_one_is_down(etcd: Etcd) {
    let relay = Relay::start(etcd.address()).await;
    let url = format!("etcd://127.0.0.1:1,{},{}", relay.address(), etcd.address());
    let store = connect(&url).await;
    grant(&store, 7, 60).await.unwrap();
    call(&store, Operation::KeepAlive(7)).await.unwrap();
    let mut watches = watching(&store, "k").await;
    relay.refuse();
    let claimed = call_again(&store, operations::claim("k", 7));
    // A try whose answer was cut off may have made it.
    match soon("the next member is asked", claimed).await {
        Ok(Response::Claimed(claimed) | Response::Taken(claimed)) => {
            assert_eq!(claimed.entry.lease, 7);
        }
        answer => panic!("{answer:?}"),
    }
    assert_eq!(next_put(&mut watches).await.key, b"k");
    assert_eq!(call(&store, Operation::KeepAlive(7)).await, Ok(Response::Renewed(60 * SECOND)));
}

async fn the_next_member_is_asked_beside_one_that_is_silent(etcd: Etcd) {
    let (first, silent) = (Relay::start(etcd.address()).await, Relay::start(etcd.address()).await);
    let url = format!("etcd://{},{},{}", first.address(), silent.address(), etcd.address());
    let store = connect(&url).await;
    grant(&store, 7, 60).await.unwrap();
    silent.black_hole();
    first.refuse();
    // The silent one may take a minute.
    let asked = call_again(&store, operations::claim("k", 7));
    let _ = timeout(Duration::from_secs(10), asked).await.expect("the third one is asked");
}

async fn a_refusal_is_told_rather_than_a_member_that_is_down(etcd: Etcd) {
    etcd.enable_users("me", "mine", "my/");
    for silent_is_first in [true, false] {
        let (silent, other) =
            (Relay::start(etcd.address()).await, Relay::start(etcd.address()).await);
        let (one, two) = if silent_is_first { (&silent, &other) } else { (&other, &silent) };
        other.refuse();
        let url = format!("etcd://{},{}/my", one.address(), two.address());
        let store = connect_as(&url, "me", "mine").await.unwrap();
        other.accept();
        etcd.as_root(&["user", "delete", "me"]);
        // Its connection is given up.
        silent.black_hole();
        let read = store.call(Operation::Read(vec![all("k")]), Duration::from_millis(100));
        assert_eq!(read.await, Err(Failure::Timeout));
        silent.refuse();
        let answer = claim(&store, "k", 7).await;
        assert!(matches!(answer, Err(Failure::Denied(_))), "{answer:?}");
        etcd.as_root(&["user", "add", "me:mine"]);
        etcd.as_root(&["user", "grant-role", "me", "of-the-prefix"]);
    }
}

#[tokio::test]
async fn nothing_there_is_unreachable() {
    for url in ["etcd://127.0.0.1:1", "etcd://localhost:1", "etcds://127.0.0.1:1"] {
        let error = try_connect(url, &Credentials::default()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
        says(&error, &["no etcd answers at", "refused"]);
    }
    let error = try_connect("etcd://no-such-host.invalid", &Credentials::default()).await;
    let error = error.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    says(&error, &["no-such-host.invalid:2379"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn something_else_is_no_etcd() {
    for answer in
        ["HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", "", "220 mail.example ESMTP\r\n"]
    {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("etcd://{}", listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.writable().await;
                let _ = stream.try_write(answer.as_bytes());
            }
        });
        let error = try_connect(&url, &Credentials::default()).await.unwrap_err();
        assert!(matches!(error, ConnectError::NotAnEtcd { .. }), "{error:?}");
        says(&error, &["no etcd", "--store"]);
        server.abort();
    }
}

async fn an_etcd_that_does_not_answer_is_unreachable(etcd: Etcd) {
    etcd.pause();
    let url: EtcdUrl = etcd.url().parse().unwrap();
    let within = Duration::from_millis(300);
    let error = EtcdStore::connect(&url, &Credentials::default(), within).await.unwrap_err();
    assert!(matches!(error, ConnectError::Unreachable { .. }), "{error:?}");
    says(&error, &["300.0ms"]);
    etcd.resume();
}
