//! The same functions, where a component that waits blocks its thread.
//!
//! They are listed by hand, because the linker that `bindgen!` makes is for components that
//! suspend. A new function of the WIT has to be added here, and a new version to the name of the
//! interface.

use incumbent::Fence;
use tokio::task::block_in_place;
use wasmtime::component::{
    ComponentNamedList, ComponentType, Lift, Linker, LinkerInstance, Lower, Resource, ResourceType,
};

use crate::bindings::incumbent::election::leadership::{Host, HostTerm};
use crate::{LeadershipCtxView, LeadershipView};

pub(crate) fn add_to_linker<T: LeadershipView + 'static>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    let mut leadership = Functions(linker.instance("incumbent:election/leadership@0.1.0")?);
    leadership.at_once("election", |view, ()| Host::election(view))?;
    leadership.at_once("id", |view, ()| Host::id(view))?;
    leadership.at_once("leading", |view, ()| Host::leading(view))?;
    leadership.waits("elected", async |view, (within,)| Host::elected(view, within).await)?;

    let term = ResourceType::host::<Fence>();
    leadership.0.resource("term", term, |mut store, handle| {
        HostTerm::drop(&mut store.data_mut().leadership(), Resource::new_own(handle))
    })?;
    leadership.at_once("[method]term.epoch", |view, (term,)| HostTerm::epoch(view, term))?;
    leadership
        .at_once("[method]term.remaining", |view, (term,)| HostTerm::remaining(view, term))?;
    leadership.at_once("[method]term.standing", |view, (term,)| HostTerm::standing(view, term))?;
    leadership.waits("[method]term.changed", async |view, (term, last, within)| {
        HostTerm::changed(view, term, last, within).await
    })?;
    leadership.waits("[method]term.get", async |view, (term, key)| {
        HostTerm::get(view, term, key).await
    })?;
    leadership.waits("[method]term.put", async |view, (term, key, value, expected)| {
        HostTerm::put(view, term, key, value, expected).await
    })?;
    leadership.waits("[method]term.delete", async |view, (term, key, expected)| {
        HostTerm::delete(view, term, key, expected).await
    })?;
    leadership.waits(
        "[method]term.write",
        async |view, (term, expectations, puts, deletions)| {
            HostTerm::write(view, term, expectations, puts, deletions).await
        },
    )?;
    leadership.waits("[method]term.proclaim", async |view, (term, value)| {
        HostTerm::proclaim(view, term, value).await
    })?;
    leadership.0.func_wrap("[method]term.resign", |mut store, (term,)| {
        HostTerm::resign(&mut store.data_mut().leadership(), term)
    })
}

/// The interface in a linker.
struct Functions<'a, T: 'static>(LinkerInstance<'a, T>);

impl<T: LeadershipView + 'static> Functions<'_, T> {
    /// Adds a function that does not wait.
    fn at_once<P, R, F>(&mut self, name: &str, call: F) -> wasmtime::Result<()>
    where
        P: ComponentNamedList + Lift + 'static,
        R: ComponentType + Lower + 'static,
        F: Fn(&mut LeadershipCtxView<'_>, P) -> wasmtime::Result<R> + Send + Sync + 'static,
    {
        self.0.func_wrap(name, move |mut store, arguments| {
            Ok((call(&mut store.data_mut().leadership(), arguments)?,))
        })
    }

    /// Adds a function that blocks the thread, but not the other tasks of a runtime that the
    /// thread works for.
    fn waits<P, R, F>(&mut self, name: &str, call: F) -> wasmtime::Result<()>
    where
        P: ComponentNamedList + Lift + 'static,
        R: ComponentType + Lower + 'static,
        F: AsyncFn(&mut LeadershipCtxView<'_>, P) -> wasmtime::Result<R> + Send + Sync + 'static,
    {
        self.at_once(name, move |view: &mut LeadershipCtxView<'_>, arguments| {
            let runtime = view.ctx.runtime.clone();
            block_in_place(|| runtime.block_on(call(view, arguments)))
        })
    }
}
