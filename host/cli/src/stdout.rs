//! Whether there is a standard output.
//!
//! Before `main`, Rust's runtime opens `/dev/null` in the place of one that is closed, and
//! nobody can tell it from one that the user has sent there. So we look before that.

use std::sync::atomic::{AtomicBool, Ordering};

use super::exit::{End, bad_input};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "the list of what runs before `main` has no safe interface")]
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
        IS_CLOSED.store(flags == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
    }
    look
};

/// For a command whose answer goes there.
pub fn check() -> Result<(), End> {
    if IS_CLOSED.load(Ordering::Relaxed) {
        return Err(bad_input(
            "standard output is closed, so that no answer can be written: open it, or send it to \
             /dev/null",
        ));
    }
    Ok(())
}
