//! A component that is told what to ask, and its platform.

use super::*;

pub struct State {
    pub leadership: LeadershipCtx,
    pub table: ResourceTable,
}

impl LeadershipView for State {
    fn leadership(&mut self) -> LeadershipCtxView<'_> {
        LeadershipCtxView { ctx: &mut self.leadership, table: &mut self.table }
    }
}

pub static COMPONENT: LazyLock<Component> =
    LazyLock::new(|| Component::new(&Engine::default(), puppet()).expect("loads"));

/// A component that is told what to ask.
pub struct Puppet {
    pub store: Store<State>,
    pub strings: Strings,
}

/// What the component holds of a term.
#[derive(Clone, Copy, Debug)]
pub struct Held(u32);

impl From<Resource<Fence>> for Held {
    fn from(term: Resource<Fence>) -> Self {
        Self(term.rep())
    }
}

impl Held {
    pub fn lent(self) -> Resource<Fence> {
        Resource::new_borrow(self.0)
    }
}

/// Asks a function of the component's.
macro_rules! ask {
    ($puppet:expr, $call:ident $(, $argument:expr)*) => {{
        let strings = $puppet.strings.incumbent_test_strings();
        strings.$call(&mut $puppet.store $(, $argument)*).expect_soon("does not trap").await
    }};
}

impl Puppet {
    pub async fn new(leadership: LeadershipCtx) -> Self {
        let engine = COMPONENT.engine();
        let mut linker = Linker::new(engine);
        incumbent_plugin::add_to_linker_async::<State>(&mut linker).expect("fits");
        let state = State { leadership, table: ResourceTable::new() };
        let mut store = Store::new(engine, state);
        let strings = Strings::instantiate_async(&mut store, &COMPONENT, &linker).await;
        Self { store, strings: strings.expect("starts") }
    }

    pub fn context(&self) -> &LeadershipCtx {
        &self.store.data().leadership
    }

    pub async fn election(&mut self) -> String {
        ask!(self, call_election)
    }

    pub async fn id(&mut self) -> String {
        ask!(self, call_id)
    }

    pub async fn leading(&mut self) -> Option<Held> {
        ask!(self, call_leading).map(Held::from)
    }

    pub async fn elected(&mut self, within: Option<Duration>) -> Result<Held, NoTerm> {
        ask!(self, call_elected, within.map(nanoseconds)).map(Held::from)
    }

    pub async fn epoch(&mut self, term: Held) -> Epoch {
        Epoch::from(ask!(self, call_epoch, term.lent()))
    }

    pub async fn remaining(&mut self, term: Held) -> Duration {
        Duration::from_nanos(ask!(self, call_remaining, term.lent()))
    }

    pub async fn standing(&mut self, term: Held) -> Standing {
        ask!(self, call_standing, term.lent())
    }

    pub async fn changed(
        &mut self,
        term: Held,
        last: &Standing,
        within: Option<Duration>,
    ) -> Standing {
        ask!(self, call_changed, term.lent(), last, within.map(nanoseconds))
    }

    pub async fn get(&mut self, term: Held, key: &str) -> Result<Option<types::Entry>, Refusal> {
        ask!(self, call_get, term.lent(), key.as_bytes())
    }

    pub async fn put(
        &mut self,
        term: Held,
        key: &str,
        value: &[u8],
        expected: Option<i64>,
    ) -> Result<i64, Refusal> {
        ask!(self, call_put, term.lent(), key.as_bytes(), value, expected)
    }

    pub async fn delete(
        &mut self,
        term: Held,
        key: &str,
        expected: Option<i64>,
    ) -> Result<i64, Refusal> {
        ask!(self, call_delete, term.lent(), key.as_bytes(), expected)
    }

    pub async fn write(
        &mut self,
        term: Held,
        expectations: &[(&str, i64)],
        puts: &[(&str, &[u8])],
        deletions: &[&str],
    ) -> Result<i64, Refusal> {
        let expectations: Vec<_> =
            expectations.iter().map(|(key, modified)| expectation(key, *modified)).collect();
        let puts: Vec<_> = puts.iter().map(|(key, value)| put(key, value)).collect();
        let deletions: Vec<_> = deletions.iter().map(|key| key.as_bytes().to_vec()).collect();
        ask!(self, call_write, term.lent(), &expectations, &puts, &deletions)
    }

    pub async fn proclaim(&mut self, term: Held, value: &[u8]) -> Result<(), Refusal> {
        ask!(self, call_proclaim, term.lent(), value)
    }

    pub async fn resign(&mut self, term: Held) {
        ask!(self, call_resign, term.lent());
    }

    pub async fn forget(&mut self, term: Held) {
        ask!(self, call_forget, Resource::new_own(term.0));
    }
}

fn expectation(key: &str, modified: i64) -> Expectation {
    Expectation { key: key.into(), modified }
}

fn put(key: &str, value: &[u8]) -> Put {
    Put { key: key.into(), value: value.into() }
}

fn nanoseconds(time: Duration) -> u64 {
    time.as_nanos().try_into().expect("fits")
}
