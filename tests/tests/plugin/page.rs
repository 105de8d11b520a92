//! The program on the page of `incumbent-plugin`, with a component that tells its epoch.

use incumbent_tests::application;

use super::*;

struct State {
    leadership: LeadershipCtx,
    table: ResourceTable,
}

impl LeadershipView for State {
    fn leadership(&mut self) -> LeadershipCtxView<'_> {
        LeadershipCtxView { ctx: &mut self.leadership, table: &mut self.table }
    }
}

#[tokio::test]
async fn a_component_runs_in_a_term_and_knows_its_epoch() {
    let engine = Engine::default();
    let mut linker = Linker::<State>::new(&engine);
    incumbent_plugin::add_to_linker_async(&mut linker).expect("a free name");
    let session = Session::connect("memory:", Options::default()).await.expect("a session");
    let leadership = session.election("jobs").campaign().await.expect("leads");
    let state = State {
        leadership: LeadershipCtx::of_term(&leadership).grant("jobs-data/"),
        table: ResourceTable::new(),
    };
    let mut store = Store::new(&engine, state);
    let component = Component::new(&engine, application::epoch()).expect("a component");
    let instance = linker.instantiate_async(&mut store, &component).await.expect("links");
    let work = instance.get_typed_func::<(), (i64,)>(&mut store, "epoch").expect("is exported");
    let (epoch,) = work.call_async(&mut store, ()).await.expect("returns");
    assert_eq!(leadership.epoch(), epoch.into());
    drop(store);
    leadership.resign().await.expect("resigns");
    session.close().await.expect("closes");
}
