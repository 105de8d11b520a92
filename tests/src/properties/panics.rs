//! Panics of tasks, which a runtime keeps to itself.

use std::cell::Cell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

/// How many panics this thread has had before.
pub struct Panics(usize);

impl Panics {
    pub fn new() -> Panics {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let earlier = take_hook();
            set_hook(Box::new(move |panic| {
                COUNT.set(COUNT.get() + 1);
                earlier(panic);
            }));
        });
        Panics(COUNT.get())
    }

    /// Panics if another one has come.
    pub fn check(self) {
        assert_eq!(COUNT.get(), self.0, "a task has panicked");
    }
}
