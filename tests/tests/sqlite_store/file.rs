//! The file and its bell: made, replaced, taken over, rung, locked by others.

use super::*;

#[tokio::test]
async fn the_file_is_a_store_and_says_so() {
    let place = Place::new();
    let _store = place.open().await;
    assert_eq!(place.number("PRAGMA application_id"), 0x496e_6375);
    assert_eq!(place.number("PRAGMA user_version"), 2);
    let mode: String =
        place.database().query_row("PRAGMA journal_mode", [], |row| row.get(0)).expect("a mode");
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_link_leads_to_the_same_store() {
    let (place, store) = Place::with_lease().await;
    let link = place.folder.path().join("link");
    symlink(place.file(), &link).expect("a link");
    let linked = open(&link).await;
    assert_eq!(ask(&linked, grant(1, 60 * SECOND)).await, Response::Exists);
    assert_eq!(linked.path(), store.path());
    assert!(!place.folder.path().join("link-wal").exists());
}

#[tokio::test]
async fn many_can_make_the_file_at_once() {
    for _ in 0..5 {
        let place = Place::new();
        let opening: Vec<_> =
            (0..8).map(|_| tokio::spawn(SqliteStore::open(place.file()))).collect();
        for (lease, opened) in (1..).zip(opening) {
            let store = opened.expect_soon("no panic").await.expect("a store");
            assert_eq!(ask(&store, grant(lease, SECOND)).await, Response::Granted(SECOND));
        }
    }
}

#[tokio::test]
async fn what_is_put_in_the_place_of_the_file_is_the_store() {
    let (place, store) = Place::with_lease().await;
    claimed(&store, "old", 1).await;
    let mut watches = started(&store).await;
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(place.beside(ending)).expect("it was there");
    }
    let other = place.open().await;
    ask(&other, grant(2, 60 * SECOND)).await;
    claimed(&other, "new", 2).await;
    assert_eq!(keys(&store).await, ["new"]);
    assert_eq!(ask(&store, Operation::KeepAlive(1)).await, Response::Expired);
    assert!(matches!(next(&mut watches).await, Change::Ended(Failure::Unavailable)));
    // Both are one store again, and what is in it stays when one of them goes.
    drop((store, watches));
    claimed(&other, "newer", 2).await;
    drop(other);
    assert_eq!(keys(&place.open().await).await, ["new", "newer"]);
}

// The bell.

#[tokio::test]
async fn others_hear_the_bell() {
    let (place, one, _other, mut watches) = Place::with_two().await;
    let began = std::time::Instant::now();
    for number in 0..100 {
        let key = format!("key/{number}");
        let at = claimed(&one, &key, 1).await.created;
        assert_eq!(seen(&mut watches).await, (at, key));
    }
    // A process that does not hear it looks every 250 ms.
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    assert_eq!(std::fs::read(place.beside("-bell")).expect("a bell"), b"!");
}

#[tokio::test]
async fn a_bell_that_was_removed_is_made_anew() {
    let (place, one, _other, mut watches) = Place::with_two().await;
    for number in 0..3 {
        std::fs::remove_file(place.beside("-bell")).expect("it is there");
        let key = format!("key/{number}");
        claimed(&one, &key, 1).await;
        assert_eq!(seen(&mut watches).await.1, key);
        // The next process that looks makes it.
        while !place.beside("-bell").exists() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn what_nobody_rang_for_is_seen() {
    let place = Place::new();
    let store = place.open().await;
    let mut watches = started(&store).await;
    // As if its writer were killed right after the commit.
    let database = place.database();
    database
        .execute_batch(
            "BEGIN IMMEDIATE;
             UPDATE meta SET revision = revision + 1;
             INSERT INTO keys VALUES (x'61', x'', 0, 2, 2);
             INSERT INTO history VALUES (2, 0, 0, x'61', x'', 0, 2);
             COMMIT;",
        )
        .expect("a change");
    assert_eq!(seen(&mut watches).await, (2, "a".into()));
}

/// A user who may write the directory may put something else in its place at any time.
#[tokio::test]
async fn a_bell_that_is_not_ours_is_not_rung() {
    let (place, one, _other, mut watches) = Place::with_two().await;
    let victim = place.folder.path().join("victim");
    std::fs::write(&victim, "precious").expect("a file");
    std::fs::set_permissions(&victim, Permissions::from_mode(0o640)).expect("it is ours");
    for (kind, plant) in FOREIGN {
        let planted = place.folder.path().join("planted");
        plant(&victim, &planted);
        std::fs::rename(planted, place.beside("-bell")).expect("it is put there");
        soon("nobody waits at it", claimed(&one, kind, 1)).await;
        assert_eq!(seen(&mut watches).await.1, kind);
    }
    assert_eq!(std::fs::read(&victim).expect("a file"), b"precious");
    assert_eq!(std::fs::metadata(&victim).expect("a file").mode() & 0o777, 0o640);
}

// Who else may lock it.

#[tokio::test]
async fn who_else_may_lock_it() {
    let place = Place::new();
    let _store = place.open().await;
    let folder = place.folder.path();
    let mut group = std::fs::metadata(place.file()).expect("a file").gid();
    if rustix::process::geteuid().is_root() {
        group += 1;
        for file in [place.file(), place.beside("-shm")] {
            std::os::unix::fs::chown(file, None, Some(group)).expect("root may");
        }
    }
    for (directory, file, memory, shared) in [
        (0o755, 0o600, 0o600, None),
        (0o755, 0o640, 0o600, Some(SharedWith::Group(group))),
        (0o755, 0o604, 0o600, Some(SharedWith::All)),
        (0o755, 0o664, 0o600, Some(SharedWith::All)),
        // What SQLite made beside it before its permissions were taken away.
        (0o755, 0o600, 0o604, Some(SharedWith::All)),
        // Nobody else gets there.
        (0o700, 0o666, 0o666, None),
        (0o710, 0o666, 0o666, Some(SharedWith::Group(group))),
        // A user who may write the directory may put files there.
        (0o757, 0o600, 0o600, Some(SharedWith::All)),
        (0o1777, 0o600, 0o600, Some(SharedWith::All)),
        (0o756, 0o600, 0o600, None),
    ] {
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
        };
        set(folder, directory);
        set(&place.file(), file);
        set(&place.beside("-shm"), memory);
        let told = SharedWith::of(&place.file());
        assert_eq!(told, shared, "{directory:o} {file:o} {memory:o}");
    }
}
