//! What the functions of `incumbent:election/leadership` do, where a component that waits
//! is suspended.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{Either, pending};
use incumbent::types::{Entry, Expectation, Put};
use incumbent::{Clock, Epoch, Error, Failure, Fence, KeyValue, Write, WriteError, admin};
use tracing::warn;
use wasmtime::component::Resource;

use crate::bindings::incumbent::election::leadership::{Host, HostTerm, NoTerm, Refusal, Standing};
use crate::{LeadershipCtx, LeadershipCtxView, MOST_BYTES, MOST_CHANGES, MOST_HANDLES, Part};

impl Host for LeadershipCtxView<'_> {
    fn election(&mut self) -> wasmtime::Result<String> {
        Ok(self.ctx.election.clone())
    }

    fn id(&mut self) -> wasmtime::Result<String> {
        Ok(self.ctx.id.clone())
    }

    fn leading(&mut self) -> wasmtime::Result<Option<Resource<Fence>>> {
        if self.ctx.lags() {
            return Ok(None);
        }
        match self.ctx.elected().now_or_never() {
            Some(Ok(fence)) => Ok(Some(self.hold(fence)?)),
            Some(Err(_)) | None => Ok(None),
        }
    }

    async fn elected(
        &mut self,
        within: Option<u64>,
    ) -> wasmtime::Result<Result<Resource<Fence>, NoTerm>> {
        let over = passed(&self.ctx.clock, within);
        let elected = tokio::select! {
            biased;
            elected = self.ctx.elected() => elected,
            () = over => Err(NoTerm::NotYet),
        };
        match elected {
            Ok(fence) => Ok(Ok(self.hold(fence)?)),
            Err(no_term) => Ok(Err(no_term)),
        }
    }
}

impl HostTerm for LeadershipCtxView<'_> {
    fn epoch(&mut self, term: Resource<Fence>) -> wasmtime::Result<i64> {
        Ok(self.table.get(&term)?.epoch().into())
    }

    fn remaining(&mut self, term: Resource<Fence>) -> wasmtime::Result<u64> {
        Ok(nanoseconds(self.table.get(&term)?.remaining()))
    }

    fn standing(&mut self, term: Resource<Fence>) -> wasmtime::Result<Standing> {
        Ok(self.table.get(&term)?.standing().into())
    }

    async fn changed(
        &mut self,
        term: Resource<Fence>,
        last: Standing,
        within: Option<u64>,
    ) -> wasmtime::Result<Standing> {
        let fence = self.table.get(&term)?;
        let last = last.into();
        let over = passed(&self.ctx.clock, within);
        let standing = tokio::select! {
            biased;
            standing = fence.changed(&last) => standing,
            () = over => fence.standing(),
        };
        Ok(standing.into())
    }

    async fn get(
        &mut self,
        term: Resource<Fence>,
        key: Vec<u8>,
    ) -> wasmtime::Result<Result<Option<Entry>, Refusal>> {
        let fence = self.table.get(&term)?;
        if let Err(refusal) = self.ctx.may_read(&key) {
            return Ok(Err(refusal));
        }
        if !fence.is_valid() {
            return Ok(Err(Refusal::Stale));
        }
        Ok(match fence.in_time(fence.get(key)).await {
            Some(Ok(found)) => Ok(found.map(entry)),
            Some(Err(failure)) => Err(Refusal::Failed(failure)),
            None => Err(Refusal::Stale),
        })
    }

    async fn put(
        &mut self,
        term: Resource<Fence>,
        key: Vec<u8>,
        value: Vec<u8>,
        expected: Option<i64>,
    ) -> wasmtime::Result<Result<i64, Refusal>> {
        let expectations = expectation(&key, expected);
        self.write(term, expectations, vec![Put { key, value }], Vec::new()).await
    }

    async fn delete(
        &mut self,
        term: Resource<Fence>,
        key: Vec<u8>,
        expected: Option<i64>,
    ) -> wasmtime::Result<Result<i64, Refusal>> {
        let expectations = expectation(&key, expected);
        self.write(term, expectations, Vec::new(), vec![key]).await
    }

    async fn write(
        &mut self,
        term: Resource<Fence>,
        expectations: Vec<Expectation>,
        puts: Vec<Put>,
        deletions: Vec<Vec<u8>>,
    ) -> wasmtime::Result<Result<i64, Refusal>> {
        let fence = self.table.get(&term)?;
        let mut expected = expectations.iter().map(|expectation| &expectation.key);
        let mut changed = puts.iter().map(|put| &put.key).chain(&deletions);
        let keys: usize = expected.clone().chain(changed.clone()).map(Vec::len).sum();
        // What a key is expected to be tells of it as well.
        let permitted = expected
            .try_for_each(|key| self.ctx.may_read(key))
            .and_then(|()| changed.try_for_each(|key| self.ctx.may_write(key)));
        let bytes = keys + puts.iter().map(|put| put.value.len()).sum::<usize>();
        let changes = expectations.len() + puts.len() + deletions.len();
        if let Err(refusal) = permitted.and_then(|()| bounded(bytes, changes)) {
            return Ok(Err(refusal));
        }
        let mut write = Write::new();
        for Expectation { key, modified } in expectations {
            write = write.expect(key, modified.into());
        }
        for Put { key, value } in puts {
            write = write.put(key, value);
        }
        for key in deletions {
            write = write.delete(key);
        }
        let written = fence.in_time(fence.write(write)).await;
        let written = written.unwrap_or(Err(WriteError::Unknown));
        Ok(written.map(i64::from).map_err(Refusal::from))
    }

    async fn proclaim(
        &mut self,
        term: Resource<Fence>,
        value: Vec<u8>,
    ) -> wasmtime::Result<Result<(), Refusal>> {
        let fence = self.table.get(&term)?;
        if let Err(refusal) = bounded(value.len(), 1) {
            return Ok(Err(refusal));
        }
        let proclaimed = fence.in_time(fence.proclaim(value)).await;
        Ok(proclaimed.unwrap_or(Err(WriteError::Unknown)).map_err(Refusal::from))
    }

    fn resign(&mut self, term: Resource<Fence>) -> wasmtime::Result<()> {
        let fence = self.table.get(&term)?;
        // Who holds the leadership sees it, and releases the key once the work has stopped.
        fence.step_down();
        self.ctx.let_go(fence.epoch());
        Ok(())
    }

    fn drop(&mut self, term: Resource<Fence>) -> wasmtime::Result<()> {
        let epoch = self.table.delete(term)?.epoch();
        if let Some(at) = self.ctx.handles.iter().position(|held| *held == epoch) {
            self.ctx.handles.swap_remove(at);
        }
        Ok(())
    }
}

impl LeadershipCtxView<'_> {
    /// Hands a term out to the component.
    fn hold(&mut self, fence: Fence) -> wasmtime::Result<Resource<Fence>> {
        if self.ctx.handles.len() >= MOST_HANDLES {
            return Err(wasmtime::Error::msg(format!(
                "the component holds {MOST_HANDLES} handles of terms already: it has to drop some"
            )));
        }
        let epoch = fence.epoch();
        let held = self.table.push(fence)?;
        self.ctx.handles.push(epoch);
        Ok(held)
    }
}

impl LeadershipCtx {
    /// The term in which the component leads, or its next one. Cancel safe.
    async fn elected(&mut self) -> Result<Fence, NoTerm> {
        match &mut self.part {
            Part::Term(fence) if fence.is_valid() => Ok(fence.clone()),
            Part::Term(_) => Err(NoTerm::Never(None)),
            Part::Terms(terms) => terms.next().await.map_err(|error| NoTerm::Never(cause(error))),
        }
    }

    /// It holds a term that is over, in which a part of it may be at work.
    fn lags(&self) -> bool {
        self.term().is_some_and(|fence| !fence.is_valid() && self.handles.contains(&fence.epoch()))
    }

    /// The work of a term has stopped.
    fn let_go(&mut self, epoch: Epoch) {
        let is_given = self.term().is_some_and(|fence| fence.epoch() == epoch);
        if let Part::Terms(terms) = &mut self.part
            && is_given
        {
            terms.let_go();
        }
    }

    fn may_read(&mut self, key: &[u8]) -> Result<(), Refusal> {
        self.permit(key, admin::belongs_to)
    }

    /// Nothing below the election's name: to etcd's own tools, a key there is a candidate.
    fn may_write(&mut self, key: &[u8]) -> Result<(), Refusal> {
        self.permit(key, admin::is_below)
    }

    /// Whether a key is granted, and none of the election's.
    fn permit(
        &mut self,
        key: &[u8],
        is_of: fn(election: &str, key: &[u8]) -> bool,
    ) -> Result<(), Refusal> {
        let granted = self.granted.iter().any(|prefix| key.starts_with(prefix));
        if granted && !is_of(&self.election, key) {
            return Ok(());
        }
        // Once: it may try for ever.
        if !mem::replace(&mut self.is_told, true) {
            let (election, key) = (&self.election, key.escape_ascii());
            warn!(%election, %key, "a component asked for a key that is not granted to it");
        }
        Err(Refusal::NotPermitted)
    }
}

/// Why a candidacy is over that was not to be.
fn cause(error: Error) -> Option<Failure> {
    if let Error::Withdrawn(failure) = error { Some(failure) } else { None }
}

/// Waits for a time to pass, if there is one.
fn passed(clock: &Arc<dyn Clock>, within: Option<u64>) -> impl Future<Output = ()> + Send + use<> {
    match within {
        Some(within) => Either::Left(clock.sleep_until(clock.now().saturating_add(within))),
        None => Either::Right(pending()),
    }
}

fn entry(found: KeyValue) -> Entry {
    Entry {
        key: found.key,
        value: found.value,
        lease: found.lease.into(),
        created: found.created.into(),
        modified: found.modified.into(),
    }
}

fn expectation(key: &[u8], expected: Option<i64>) -> Vec<Expectation> {
    expected.map(|modified| Expectation { key: key.to_vec(), modified }).into_iter().collect()
}

fn bounded(bytes: usize, changes: usize) -> Result<(), Refusal> {
    let sentence = if bytes > MOST_BYTES {
        format!("{bytes} bytes are too many for one write: {MOST_BYTES} at most")
    } else if changes > MOST_CHANGES {
        format!(
            "{changes} changes and expectations are too many for one write: {MOST_CHANGES} at most"
        )
    } else {
        return Ok(());
    };
    Err(Refusal::Failed(Failure::Invalid(sentence)))
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        match error {
            // A closed session has no terms.
            WriteError::Stale | WriteError::Closed => Self::Stale,
            WriteError::Conflict => Self::Conflict,
            WriteError::Unknown => Self::Unknown,
            WriteError::Failed(failure) => Self::Failed(failure),
            // Of a later version of the library.
            _ => Self::Unknown,
        }
    }
}

impl From<incumbent::Standing> for Standing {
    fn from(standing: incumbent::Standing) -> Self {
        match standing {
            incumbent::Standing::Firm => Self::Firm,
            incumbent::Standing::Endangered => Self::Endangered,
            incumbent::Standing::Over(reason) => Self::Over(reason),
        }
    }
}

impl From<Standing> for incumbent::Standing {
    fn from(standing: Standing) -> Self {
        match standing {
            Standing::Firm => Self::Firm,
            Standing::Endangered => Self::Endangered,
            Standing::Over(reason) => Self::Over(reason),
        }
    }
}

/// A span of time as components take it; the longest one for what is longer.
pub(crate) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
