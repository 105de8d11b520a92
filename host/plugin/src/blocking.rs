//! The same functions, where a component that waits blocks its thread.

use tokio::runtime::Handle;
use tokio::task::block_in_place;
use wasmtime::component::Resource;

use crate::LeadershipCtxView;
use crate::bindings::blocking::incumbent::election::leadership::{
    Host, HostTerm, NoTerm, Refusal, Standing,
};
use crate::bindings::suspending::incumbent::election::leadership as suspending;
use incumbent::Fence;
use incumbent::types::{Entry, Expectation, Put};

impl Host for LeadershipCtxView<'_> {
    fn election(&mut self) -> wasmtime::Result<String> {
        suspending::Host::election(self)
    }

    fn id(&mut self) -> wasmtime::Result<String> {
        suspending::Host::id(self)
    }

    fn leading(&mut self) -> wasmtime::Result<Option<Resource<Fence>>> {
        suspending::Host::leading(self)
    }

    fn elected(
        &mut self,
        within: Option<u64>,
    ) -> wasmtime::Result<Result<Resource<Fence>, NoTerm>> {
        let runtime = self.runtime();
        let elected = wait(&runtime, suspending::Host::elected(self, within))?;
        Ok(elected.map_err(NoTerm::from))
    }
}

impl HostTerm for LeadershipCtxView<'_> {
    fn epoch(&mut self, term: Resource<Fence>) -> wasmtime::Result<i64> {
        suspending::HostTerm::epoch(self, term)
    }

    fn remaining(&mut self, term: Resource<Fence>) -> wasmtime::Result<u64> {
        suspending::HostTerm::remaining(self, term)
    }

    fn standing(&mut self, term: Resource<Fence>) -> wasmtime::Result<Standing> {
        Ok(suspending::HostTerm::standing(self, term)?.into())
    }

    fn changed(
        &mut self,
        term: Resource<Fence>,
        last: Standing,
        within: Option<u64>,
    ) -> wasmtime::Result<Standing> {
        let runtime = self.runtime();
        let changed = suspending::HostTerm::changed(self, term, last.into(), within);
        Ok(wait(&runtime, changed)?.into())
    }

    fn get(
        &mut self,
        term: Resource<Fence>,
        key: Vec<u8>,
    ) -> wasmtime::Result<Result<Option<Entry>, Refusal>> {
        let runtime = self.runtime();
        let found = wait(&runtime, suspending::HostTerm::get(self, term, key))?;
        Ok(found.map_err(Refusal::from))
    }

    fn put(
        &mut self,
        term: Resource<Fence>,
        key: Vec<u8>,
        value: Vec<u8>,
        expected: Option<i64>,
    ) -> wasmtime::Result<Result<i64, Refusal>> {
        let runtime = self.runtime();
        let put = wait(&runtime, suspending::HostTerm::put(self, term, key, value, expected))?;
        Ok(put.map_err(Refusal::from))
    }

    fn delete(
        &mut self,
        term: Resource<Fence>,
        key: Vec<u8>,
        expected: Option<i64>,
    ) -> wasmtime::Result<Result<i64, Refusal>> {
        let runtime = self.runtime();
        let deleted = wait(&runtime, suspending::HostTerm::delete(self, term, key, expected))?;
        Ok(deleted.map_err(Refusal::from))
    }

    fn write(
        &mut self,
        term: Resource<Fence>,
        expectations: Vec<Expectation>,
        puts: Vec<Put>,
        deletions: Vec<Vec<u8>>,
    ) -> wasmtime::Result<Result<i64, Refusal>> {
        let runtime = self.runtime();
        let write = suspending::HostTerm::write(self, term, expectations, puts, deletions);
        Ok(wait(&runtime, write)?.map_err(Refusal::from))
    }

    fn proclaim(
        &mut self,
        term: Resource<Fence>,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), Refusal>> {
        let runtime = self.runtime();
        let proclaimed = wait(&runtime, suspending::HostTerm::proclaim(self, term, value))?;
        Ok(proclaimed.map_err(Refusal::from))
    }

    fn resign(&mut self, term: Resource<Fence>) -> wasmtime::Result<()> {
        suspending::HostTerm::resign(self, term)
    }

    fn drop(&mut self, term: Resource<Fence>) -> wasmtime::Result<()> {
        suspending::HostTerm::drop(self, term)
    }
}

impl LeadershipCtxView<'_> {
    fn runtime(&self) -> Handle {
        self.ctx.runtime.clone()
    }
}

/// Blocks the thread, and not the other tasks of a runtime that the thread works for.
fn wait<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    block_in_place(|| runtime.block_on(future))
}

impl From<suspending::NoTerm> for NoTerm {
    fn from(no_term: suspending::NoTerm) -> Self {
        match no_term {
            suspending::NoTerm::NotYet => Self::NotYet,
            suspending::NoTerm::Never(failure) => Self::Never(failure),
        }
    }
}

impl From<suspending::Standing> for Standing {
    fn from(standing: suspending::Standing) -> Self {
        match standing {
            suspending::Standing::Firm => Self::Firm,
            suspending::Standing::Endangered => Self::Endangered,
            suspending::Standing::Over(reason) => Self::Over(reason),
        }
    }
}

impl From<Standing> for suspending::Standing {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Firm => Self::Firm,
            Standing::Endangered => Self::Endangered,
            Standing::Over(reason) => Self::Over(reason),
        }
    }
}

impl From<suspending::Refusal> for Refusal {
    fn from(refusal: suspending::Refusal) -> Self {
        match refusal {
            suspending::Refusal::Stale => Self::Stale,
            suspending::Refusal::Conflict => Self::Conflict,
            suspending::Refusal::Unknown => Self::Unknown,
            suspending::Refusal::NotPermitted => Self::NotPermitted,
            suspending::Refusal::Failed(failure) => Self::Failed(failure),
        }
    }
}
