//! How a test controls a driver: it stops the driver, and waits until the driver has nothing
//! left to do. The driver answers once it has looked for something to do and found nothing, so
//! that no test waits for a time.

use std::mem;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::term::Deadlines;

/// Makes one for each driver of a session.
pub(crate) type TestHooks = Arc<dyn Fn() -> Arc<TestHook> + Send + Sync>;

/// The driver's side.
#[derive(Debug, Default)]
pub(crate) struct TestHook(Mutex<HookState>);

#[derive(Debug, Default)]
struct HookState {
    paused: bool,
    /// Answered as soon as there is nothing to do.
    asked: Vec<oneshot::Sender<u64>>,
    /// How often there was something to do.
    turns: u64,
    driver: Option<Waker>,
}

/// The test's side. It does not keep the driver alive.
#[derive(Clone, Debug)]
pub(crate) struct TestController {
    hook: Weak<TestHook>,
    deadlines: Arc<Deadlines>,
}

impl TestHook {
    /// Looks for something to do, unless the driver has to stand still.
    pub(super) fn poll(
        &self,
        context: &mut Context<'_>,
        look: impl FnOnce(&mut Context<'_>) -> Poll<()>,
    ) -> Poll<()> {
        let (paused, asked) = {
            let mut state = self.0.lock();
            state.driver = Some(context.waker().clone());
            (state.paused, mem::take(&mut state.asked))
        };
        let found = if paused { Poll::Pending } else { look(context) };
        let mut state = self.0.lock();
        if found.is_ready() {
            state.turns += 1;
            state.asked.extend(asked);
        } else {
            for asked in asked {
                // The test may have given up.
                let _ = asked.send(state.turns);
            }
        }
        found
    }
}

#[cfg_attr(not(feature = "testing"), expect(dead_code, reason = "only `testing` has controllers"))]
impl TestController {
    pub(crate) fn new(deadlines: Arc<Deadlines>) -> (Arc<TestHook>, Self) {
        let hook = Arc::new(TestHook::default());
        let controller = Self { hook: Arc::downgrade(&hook), deadlines };
        (hook, controller)
    }

    /// Asks for the number of the driver's turns until it has nothing left to do. The
    /// answer fails if the driver has ended.
    pub(crate) fn ask(&self) -> oneshot::Receiver<u64> {
        let (asked, answer) = oneshot::channel();
        self.change(|state| state.asked.push(asked));
        answer
    }

    /// Whether the driver still exists.
    pub(crate) fn is_needed(&self) -> bool {
        self.hook.strong_count() > 0
    }

    /// Waits until all terms that are due have ended, and their endings have been called.
    pub(crate) async fn deadlines_idle(&self) {
        while !self.deadlines.is_idle() {
            yield_now().await;
        }
    }

    /// Stops the driver and the deadline thread, or lets them go on.
    pub(crate) fn pause(&self, pause: bool) {
        self.deadlines.pause(pause);
        self.change(|state| state.paused = pause);
    }

    /// Nothing, if the driver has ended.
    fn change(&self, change: impl FnOnce(&mut HookState)) {
        let Some(hook) = self.hook.upgrade() else {
            return;
        };
        let mut state = hook.0.lock();
        change(&mut state);
        if let Some(driver) = &state.driver {
            driver.wake_by_ref();
        }
    }
}
