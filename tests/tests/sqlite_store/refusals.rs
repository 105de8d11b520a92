//! What is no place for a store, and says so in a sentence.

use std::fs;
use std::io::{Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use incumbent::types::Response;
use incumbent::{Failure, SqliteError, SqliteStore, Store as _};

use super::processes::{Process, skipped};
use super::{FOREIGN, Place, Plant, ask, claimed, keys};
use incumbent_tests::operations::{SECOND, claim, grant};
use incumbent_tests::wait::{ExpectSoon, LIMIT, soon, until};

/// The sentence, without the folder.
async fn refusal(path: &Path, folder: &Path) -> String {
    let error = SqliteStore::open(path).await.expect_err("this is no place for a store");
    let folder = folder.canonicalize().expect("it is there");
    format!("{error}").replace(&format!("{}/", folder.display()), "")
}

#[tokio::test]
async fn no_directory_and_no_file() {
    let place = Place::new();
    let folder = place.folder.path();
    assert_eq!(
        refusal(&folder.join("absent/store.db"), folder).await,
        "absent/store.db has no directory to be in: make it first, or name another file"
    );
    fs::write(folder.join("file"), "").expect("a file");
    assert_eq!(
        refusal(&folder.join("file/store.db"), folder).await,
        "file/store.db has no directory to be in: make it first, or name another file"
    );
    fs::create_dir(folder.join("folder")).expect("a folder");
    for name in ["folder", "folder/"] {
        assert_eq!(
            refusal(&folder.join(name), folder).await,
            "folder is no file that could be a store: name a file"
        );
    }
}

#[tokio::test]
async fn a_file_of_two_names() {
    let place = Place::new();
    drop(place.open().await);
    fs::hard_link(place.file(), place.folder.path().join("other.db")).expect("a link");
    assert_eq!(
        refusal(&place.file(), place.folder.path()).await,
        "store.db has another name (a hard link): remove one of them"
    );
}

#[tokio::test]
async fn what_lies_beside_it_and_is_not_its_own() {
    let place = Place::new();
    let folder = place.folder.path();
    let victim = folder.join("victim");
    fs::write(&victim, "precious").expect("a file");
    let directory: Plant = |_, path| fs::create_dir(path).expect("a folder");
    let kinds = || FOREIGN.into_iter().chain([("a directory", directory)]);
    for ending in ["-journal", "-wal", "-shm", "-bell"] {
        for (kind, plant) in kinds() {
            let beside = place.beside(ending);
            plant(&victim, &beside);
            let said = soon("an answer", refusal(&place.file(), folder)).await;
            let expected = format!(
                "store.db{ending} is {kind}, and the store needs a file of its own there: stop \
                 all that use the store, and remove it"
            );
            assert_eq!(said, expected);
            assert!(!place.file().exists(), "nothing is made");
            let removed =
                if beside.is_dir() { fs::remove_dir(&beside) } else { fs::remove_file(&beside) };
            removed.expect("it is there");
        }
    }
    assert_eq!(fs::read(victim).expect("a file"), b"precious");
    drop(place.open().await);
}

#[tokio::test]
async fn a_file_that_is_mounted_alone() {
    let place = Place::new();
    drop(place.open().await);
    let folder = place.folder.path();
    let Some(mut other) = Process::with_the_file_mounted("mounted_alone", folder) else {
        return skipped("no file system of one's own");
    };
    assert_eq!(
        other.line(),
        "store.db is mounted by itself: mount its directory, because the files beside it have to \
         be shared as well"
    );
}

pub(super) async fn mounted_alone(folder: &Path) {
    super::processes::say(refusal(&folder.join("store.db"), folder).await);
}

/// A process that made it anew meanwhile would share the memory of those who have it open.
#[tokio::test]
async fn a_file_that_went_without_what_lies_beside_it() {
    let (place, store) = Place::with_lease().await;
    fs::remove_file(place.file()).expect("it is there");
    let refused = store.call(claim("key", 1), LIMIT).await;
    let Err(Failure::Other(sentence)) = refused else { panic!("{refused:?}") };
    assert!(sentence.contains("was removed or replaced, but not its -wal and -shm"), "{sentence}");
    assert!(!place.file().exists(), "nobody makes it");
    for ending in ["-wal", "-shm"] {
        fs::remove_file(place.beside(ending)).expect("it is there");
    }
    let answer = store.call(claim("key", 1), LIMIT).await;
    assert_eq!(answer, Ok(Response::Expired), "another store is in its place");
}

#[tokio::test]
async fn what_belongs_to_others() {
    let place = Place::new();
    let folder = place.folder.path();
    fs::write(place.file(), "no database at all. ".repeat(1_000)).expect("a file");
    assert_eq!(
        refusal(&place.file(), folder).await,
        "store.db is no store of Incumbent's (it is not an SQLite database): name another file"
    );
    fs::remove_file(place.file()).expect("it is there");
    place.database().execute_batch("CREATE TABLE theirs (a)").expect("a table");
    let theirs = fs::read(place.file()).expect("a file");
    assert_eq!(
        refusal(&place.file(), folder).await,
        "store.db is no store of Incumbent's (it is the SQLite database of another \
         application): name another file"
    );
    assert_eq!(fs::read(place.file()).expect("a file"), theirs, "it is not touched");
}

#[tokio::test]
async fn a_newer_version() {
    let place = Place::new();
    drop(place.open().await);
    place.database().execute_batch("PRAGMA user_version = 7").expect("a number");
    assert_eq!(
        refusal(&place.file(), place.folder.path()).await,
        "store.db was made by a newer version of Incumbent (format 7): update this one, or name \
         another file"
    );
}

#[tokio::test]
async fn a_damaged_file() {
    let (place, store) = Place::with_lease().await;
    for number in 0..200 {
        claimed(&store, &format!("key/{number}"), 1).await;
    }
    drop(store);
    place.database().execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").expect("it is idle");
    let mut file = fs::OpenOptions::new().write(true).open(place.file()).expect("a file");
    file.seek(SeekFrom::Start(2 * 4_096)).expect("it is that long");
    file.write_all(&[0xa5; 4_096 * 3]).expect("space");
    drop(file);
    let said = refusal(&place.file(), place.folder.path()).await;
    assert!(said.starts_with("store.db is damaged ("), "{said}");
    assert!(said.contains("remove it together with its -wal and -shm"), "{said}");
}

/// Root may write everything but what nobody may.
#[tokio::test]
async fn what_cannot_be_written() {
    let place = Place::new();
    drop(place.open().await);
    if rustix::process::geteuid().is_root() {
        let Some(mut other) = Process::on_a_small_disk("read_only", place.folder.path()) else {
            return skipped("no file system of one's own");
        };
        for name in ["store.db", "absent.db"] {
            let said = other.line();
            assert!(said.starts_with(name), "{said}");
            assert!(said.contains("cannot be written (") && said.contains("Read-only"), "{said}");
        }
        return;
    }
    for locked in [place.file(), place.folder.path().to_owned()] {
        let before = fs::metadata(&locked).expect("it is there").permissions();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o555)).expect("it is ours");
        let said = refusal(&place.file(), place.folder.path()).await;
        fs::set_permissions(&locked, before).expect("it is ours");
        assert!(said.contains("cannot be written ("), "{said}");
    }
}

#[tokio::test]
async fn a_full_disk() {
    let place = Place::new();
    let Some(mut other) = Process::on_a_small_disk("full_disk", place.folder.path()) else {
        return skipped("no file system of one's own");
    };
    assert_eq!(other.line(), "done");
}

/// What the other process does, in a file system of 1 MB that goes with it.
pub(super) async fn full_disk(folder: &Path) {
    let file = folder.join("store.db");
    let ballast = folder.join("ballast");
    fs::write(&ballast, vec![0; 500_000]).expect("there is space");
    let store = SqliteStore::open(&file).expect_soon("a store").await;
    ask(&store, grant(1, 600 * SECOND)).await;
    let mut made = 0;
    let refused = loop {
        match store.call(claim(&format!("{made:01000}"), 1), LIMIT).await {
            Ok(Response::Claimed(_)) => made += 1,
            other => break other,
        }
    };
    let Err(Failure::Other(sentence)) = refused else { panic!("{refused:?}") };
    assert!(sentence.starts_with("no space is left for "), "{sentence}");
    assert_eq!(keys(&store).await.len(), made, "what was answered is there");
    // No store has room beside it, and says so.
    let space = fs::File::create(folder.join("rest")).expect("a name");
    for piece in [4_096, 1] {
        while (&space).write_all(&vec![0; piece]).is_ok() {}
    }
    let opened = SqliteStore::open(folder.join("another.db")).await;
    assert!(matches!(opened, Err(SqliteError::Full { .. })), "{opened:?}");
    // It goes on by itself.
    fs::remove_file(ballast).expect("it is there");
    claimed(&store, "more", 1).await;
    assert_eq!(keys(&store).await.len(), made + 1);
}

pub(super) async fn read_only(folder: &Path) {
    drop(SqliteStore::open(folder.join("store.db")).expect_soon("a store").await);
    // As long as the store's thread has the file open, it may be written.
    let mut mount = Command::new("mount");
    mount.args(["-o", "remount,ro"]).arg(folder).stderr(Stdio::null());
    let mounted = async || mount.status().expect("mount").success();
    until("it cannot be written any more", mounted).await;
    for name in ["store.db", "absent.db"] {
        super::processes::say(refusal(&folder.join(name), folder).await);
    }
}
