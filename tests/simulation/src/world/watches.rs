//! The streams of watches between members and hosts.

use incumbent_guest::types::*;

use super::{Happening, World};
use crate::plan::Kind;
use crate::{MILLISECOND, SECOND};

/// How long a host listens to a stream that should speak before it opens another.
pub const SILENCE: Duration = 4 * SECOND;

impl World<'_> {
    pub(super) fn watch(&mut self, process: usize, watch: Watch) {
        let (id, since) = (watch.id, watch.since);
        let it = &mut self.processes[process];
        it.stream.insert(watch);
        let stream = it.stream.number;
        let member = it.member;
        // The stream's messages wait for a cut to end, or for another stream.
        let delay = self.delay();
        if self.is_cut(process, member, true) {
            self.supervise_soon(process);
        } else {
            self.after(delay, Happening::Open { process, stream, id, since });
        }
    }

    pub(super) fn open(
        &mut self,
        process: usize,
        stream: u32,
        id: RequestId,
        since: Option<Revision>,
    ) {
        let it = &mut self.processes[process];
        let member = it.member;
        if it.stream.number != stream || !it.stream.contains(id) {
            return;
        }
        if !self.serves(member) {
            return self.supervise_soon(process);
        }
        let watches = &mut self.processes[process].stream;
        let store = &self.cluster.store;
        let change = match since.map(|since| store.changes_before(since)) {
            None => {
                watches.begin(id, store.changes());
                Change::Started(store.revision())
            }
            Some(Ok(told)) => {
                watches.begin(id, told);
                return self.flush_soon(process);
            }
            Some(Err(failure)) => {
                watches.remove(id);
                Change::Ended(failure)
            }
        };
        self.deliver(process, vec![Watched { id, change }]);
    }

    /// The store changed: its watches tell so.
    pub fn changed(&mut self) {
        for process in 0..self.processes.len() {
            self.flush_soon(process);
        }
    }

    pub(super) fn flush_soon(&mut self, process: usize) {
        let changes = self.cluster.store.changes();
        let stream = &mut self.processes[process].stream;
        if !stream.flushing && stream.is_behind(changes) {
            stream.flushing = true;
            let number = stream.number;
            let lag = 50_000 + self.rng.u64(..MILLISECOND);
            self.after(lag, Happening::Flush { process, stream: number });
        }
    }

    /// The member tells what its watches saw.
    pub(super) fn flush(&mut self, process: usize, stream: u32) {
        let it = &mut self.processes[process];
        if it.stream.number != stream {
            return;
        }
        it.stream.flushing = false;
        let member = it.member;
        if !self.serves(member) || self.is_cut(process, member, false) {
            return self.supervise_soon(process);
        }
        let lost = self.hardest(|kind| match kind {
            Kind::LostNews(of, share) if of == process => Some(share),
            _ => None,
        });
        let store = &self.cluster.store;
        self.changes.catch_up(store);
        let mut news = Vec::new();
        for (id, at) in self.processes[process].stream.flush(store, &self.changes) {
            if lost > 0 && self.rng.u32(..1_000) < lost {
                self.run.lost_news += 1;
            } else if let Some((_, change)) = store.changes_after(at).first() {
                news.push(Watched { id, change: change.clone() });
            }
        }
        if !news.is_empty() {
            self.deliver(process, news);
        }
    }

    /// What is sent on a stream arrives in order, or not at all.
    pub(super) fn deliver(&mut self, process: usize, news: Vec<Watched>) {
        let delay = self.delay();
        let stream = &mut self.processes[process].stream;
        let at = (self.now + delay).max(stream.last_arrival + 1);
        stream.last_arrival = at;
        let number = stream.number;
        self.push(at, Happening::News { process, stream: number, news });
    }

    pub(super) fn news(&mut self, process: usize, stream: u32, news: Vec<Watched>) {
        if self.processes[process].stream.number != stream {
            return;
        }
        for watched in news {
            self.processes[process].stream.heard(&watched);
            if self.repeats() {
                self.tell(process, Event::Watched(watched.clone()));
            }
            self.tell(process, Event::Watched(watched));
        }
    }

    pub(super) fn supervise_soon(&mut self, process: usize) {
        let stream = &mut self.processes[process].stream;
        if !stream.supervised {
            stream.supervised = true;
            let number = stream.number;
            let pause = SILENCE / 2 + self.rng.u64(..SILENCE);
            self.after(pause, Happening::Supervise { process, stream: number });
        }
    }

    /// A stream that has nothing to say for too long is opened elsewhere.
    pub(super) fn supervise(&mut self, process: usize, stream: u32) {
        let it = &mut self.processes[process];
        if it.stream.number != stream {
            return;
        }
        it.stream.supervised = false;
        it.member = (it.member + 1) % self.plan.members;
        self.break_stream(process, self.plan.hosts_mend);
    }

    /// Opens a new stream. Its watches go on where they were, or are said to have
    /// ended.
    pub(super) fn break_stream(&mut self, process: usize, mends: bool) {
        let it = &mut self.processes[process];
        it.stream.number += 1;
        it.stream.flushing = false;
        it.stream.supervised = false;
        let (stream, member) = (it.stream.number, it.member);
        if !mends {
            for id in it.stream.remove_all() {
                let change = Change::Ended(Failure::Unavailable);
                self.tell(process, Event::Watched(Watched { id, change }));
            }
            return;
        }
        // What was on its way is lost with the stream: it is told again.
        let watches = it.stream.interrupt();
        let cut = [true, false].into_iter().any(|to| self.is_cut(process, member, to));
        if cut || !self.serves(member) {
            return self.supervise_soon(process);
        }
        for (id, since) in watches {
            let delay = self.delay();
            self.after(delay, Happening::Open { process, stream, id, since });
        }
    }
}
