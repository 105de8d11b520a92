//! Whether there is a standard output.
//!
//! Before `main`, Rust's runtime opens `/dev/null` in place of a closed one, and later that
//! cannot be told from a redirection by the user. So we look before the runtime does.

use std::sync::atomic::{AtomicBool, Ordering};

use super::exit::{End, bad_input};

static IS_CLOSED: AtomicBool = AtomicBool::new(false);

#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "a function that runs before `main` has no safe interface")]
#[unsafe(link_section = ".init_array")]
#[used]
static LOOK: extern "C" fn() = {
    extern "C" fn look() {
        let flags = rustix::io::fcntl_getfd(rustix::stdio::stdout());
        IS_CLOSED.store(flags == Err(rustix::io::Errno::BADF), Ordering::Relaxed);
    }
    look
};

/// For a command that prints its answer there.
pub fn check() -> Result<(), End> {
    if IS_CLOSED.load(Ordering::Relaxed) {
        return Err(bad_input(
            "standard output is closed, so that no answer can be written: open it, or send it to \
             /dev/null",
        ));
    }
    Ok(())
}
