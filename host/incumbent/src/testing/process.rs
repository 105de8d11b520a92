//! A process of the world, and what can happen to it.

use std::sync::Arc;

use parking_lot::Mutex;

use super::World;
use super::link::{Link, Linked};
use crate::driver::test_hook::{TestController, TestHooks};
use crate::error::Error;
use crate::options::Options;
use crate::session::{Session, compiled, parts};
use crate::term::Deadlines;

/// What would be an instance of the application: a session, and its way to the store.
///
/// It keeps its session, which lives until this and everything made from it is dropped. A
/// process that crashes is one that is [`pause`](Self::pause)d for good.
#[derive(Debug)]
pub struct Process {
    world: World,
    session: Session,
    drivers: Arc<Mutex<Drivers>>,
    link: Arc<Link>,
}

impl Process {
    pub(super) async fn start(world: World, options: Options, seed: u64) -> Result<Self, Error> {
        let link = Arc::new(Link::new(world.store.clone(), world.clock.clone()));
        let component = compiled(&options).await?;
        let mut parts = parts(Arc::new(Linked(Arc::clone(&link))), component, options)?;
        parts.config.seed = (seed, seed);
        let drivers = Arc::<Mutex<Drivers>>::default();
        parts.test_hooks = Some(hooks(&world, &drivers, &parts.deadlines));
        let session = Session::start(parts)?;
        Ok(Self { world, session, drivers, link })
    }

    /// The session, for the code under test: it is cheap to clone.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Stops the process, as SIGSTOP, a debugger or a hypervisor does: its session renews
    /// nothing, notices nothing and tells nothing, while time passes for all others. The
    /// clock goes on, so [`Leadership::is_valid`](crate::Leadership::is_valid) knows, at
    /// once, when it is over.
    ///
    /// The application's own tasks are not stopped: the test is in their midst, and does
    /// not let them go on. A write that is asked for meanwhile waits for
    /// [`resume`](Self::resume). Cancel safe, as all that is directed here: it has
    /// happened, but perhaps not reached everybody.
    pub async fn pause(&self) {
        // What has happened by now, it knows.
        self.world.settle().await;
        self.drivers.lock().pause(true);
        self.world.settle().await;
    }

    /// Lets a process that was stopped go on, late.
    pub async fn resume(&self) {
        self.drivers.lock().pause(false);
        self.world.settle().await;
    }

    /// Cuts the process off from the store: it gets no answers, and its watches are silent.
    /// Nothing that it asks for meanwhile is ever done.
    pub async fn cut(&self) {
        self.link.cut(true);
        self.world.settle().await;
    }

    /// Mends the [`cut`](Self::cut): a caller that still waits for an answer gets
    /// [`Failure::Unavailable`](crate::Failure::Unavailable), and the watches go on with
    /// what they have missed.
    pub async fn heal(&self) {
        self.link.cut(false);
        self.world.settle().await;
    }

    /// Holds up the guarded writes that the process sends from now on, between it and the
    /// store. Renewals, claims and watches go through.
    pub async fn delay_writes(&self) {
        self.link.delay_writes();
        self.world.settle().await;
    }

    /// Has the writes that were [`delay`](Self::delay_writes)ed arrive, in their order,
    /// even if nobody waits for them any more. The store checks their guards now.
    pub async fn deliver_writes(&self) {
        self.link.deliver_writes();
        self.world.settle().await;
    }

    /// The next guarded write of the process is made, and its answer lost: its
    /// caller is told [`WriteError::Unknown`](crate::WriteError::Unknown). Proclamations and
    /// resignations are guarded writes as well.
    pub fn lose_next_answer(&self) {
        self.link.lose_next_answer();
    }
}

/// The drivers of the process: its session may start more of them.
#[derive(Debug, Default)]
struct Drivers {
    controllers: Vec<TestController>,
    paused: bool,
}

impl Drivers {
    fn pause(&mut self, pause: bool) {
        self.paused = pause;
        self.controllers.retain(TestController::is_needed);
        self.controllers.iter().for_each(|controller| controller.pause(pause));
    }
}

/// Has the world and the process control each driver from its start.
fn hooks(world: &World, drivers: &Arc<Mutex<Drivers>>, deadlines: &Arc<Deadlines>) -> TestHooks {
    let (all, drivers) = (Arc::clone(&world.controllers), Arc::clone(drivers));
    let deadlines = Arc::clone(deadlines);
    Arc::new(move || {
        let (hook, controller) = TestController::new(Arc::clone(&deadlines));
        let mut drivers = drivers.lock();
        if drivers.paused {
            controller.pause(true);
        }
        all.lock().push(controller.clone());
        drivers.controllers.push(controller);
        hook
    })
}
