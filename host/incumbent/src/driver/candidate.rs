//! A candidate, as the driver keeps it: it has one role, and its users see a stage of that.

use std::mem;

use tracing::{info, warn};

use super::channel::{CandidateSender, Stage};
use super::place::Place;
use crate::event::{Event, TermInfo};
use crate::metrics;
use crate::term::Term;
use crate::types::{self, Candidacy, Epoch, Failure, Reason};

#[derive(Debug)]
pub(crate) struct CandidateState {
    pub(super) candidacy: Candidacy,
    sender: CandidateSender,
    role: Role,
    pub(super) last_epoch: Epoch,
    pub(super) leaving: bool,
    _place: Place,
}

#[derive(Debug)]
enum Role {
    /// Not in line yet.
    Joining,
    /// Was in line; perhaps on its way back there.
    Waiting,
    /// `yielded`: the elector was told that the work has stopped.
    Leading { term: Term, yielded: bool },
    /// The deadline has passed, and the users were told; the elector has yet to notice.
    Expired { term: Term, yielded: bool },
    /// Demoted, and the work has not stopped yet.
    Stopping(Term),
    /// The elector broke. Unless yielded before, the term stands to its deadline, and the
    /// candidate campaigns again only once it has yielded. `over`: the users were told.
    Orphaned { term: Term, over: bool },
}

impl Role {
    /// What the users see.
    fn stage(&self) -> Stage {
        match self {
            Self::Joining => Stage::Joining,
            Self::Leading { term, .. } | Self::Orphaned { term, over: false } => {
                Stage::Leading(term.clone())
            }
            Self::Waiting
            | Self::Expired { .. }
            | Self::Stopping(_)
            | Self::Orphaned { over: true, .. } => Stage::Waiting,
        }
    }
}

impl CandidateState {
    pub(crate) fn new(candidacy: Candidacy, sender: CandidateSender, place: Place) -> Self {
        Self {
            candidacy,
            sender,
            role: Role::Joining,
            last_epoch: Epoch::default(),
            leaving: false,
            _place: place,
        }
    }

    pub(super) fn tell(&self, event: Event) {
        self.sender.send(event, None);
    }

    /// Whether no term of its own stands or has to stop.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.role, Role::Joining | Role::Waiting)
    }

    /// The term that it leads, by what the elector has said.
    pub(super) fn led(&self) -> Option<&Term> {
        if let Role::Leading { term, .. } | Role::Expired { term, .. } = &self.role {
            return Some(term);
        }
        None
    }

    pub(super) fn orphaned(&self) -> Option<&Term> {
        if let Role::Orphaned { term, .. } = &self.role {
            return Some(term);
        }
        None
    }

    // The changes of role.

    pub(super) fn join(&mut self) {
        if let Role::Joining = self.role {
            self.change(Role::Waiting);
        }
    }

    pub(super) fn lead(&mut self, term: Term) {
        self.last_epoch = term.epoch();
        self.change(Role::Leading { term: term.clone(), yielded: false });
        let info = TermInfo::new(&term, term.deadline());
        self.sender.send(Event::Elected(info), Some(term));
    }

    /// Its work has stopped. Returns whether the elector has to be told: not a second
    /// time, and not if the elector of the term broke.
    pub(super) fn work_stopped(&mut self) -> bool {
        match &mut self.role {
            Role::Leading { yielded, .. } | Role::Expired { yielded, .. } => *yielded = true,
            Role::Stopping(_) => self.change(Role::Waiting),
            Role::Joining | Role::Waiting | Role::Orphaned { .. } => return false,
        }
        true
    }

    /// Its deadline has passed, though the elector takes the term to stand. Returns the term
    /// that has to be resigned.
    pub(super) fn expire(&mut self) -> Option<types::Term> {
        let Role::Leading { term, yielded } = &self.role else {
            return None;
        };
        let (term, yielded) = (term.clone(), *yielded);
        let reason = term.end(Reason::Expired);
        self.demote(&term, reason, Role::Expired { term: term.clone(), yielded });
        Some(term.id)
    }

    /// The elector has ended its term. True if nobody was told of the term, and so nobody
    /// works for it: then the driver says that the work has stopped.
    pub(super) fn demoted(&mut self, reason: Reason) -> bool {
        let (Role::Leading { term, yielded } | Role::Expired { term, yielded }) = &self.role else {
            return false;
        };
        let (term, yielded) = (term.clone(), *yielded);
        let reason = term.end(reason);
        let nobody_works = !yielded && term.take();
        if nobody_works {
            term.mark_yielded();
        }
        let stopped = yielded || nobody_works;
        let role = if stopped { Role::Waiting } else { Role::Stopping(term.clone()) };
        self.demote(&term, reason, role);
        nobody_works
    }

    /// The elector broke. Returns the term, if it is without an elector only now.
    pub(super) fn orphan(&mut self) -> Option<Term> {
        let (term, over) = match &self.role {
            Role::Leading { term, .. } => (term.clone(), false),
            Role::Expired { term, .. } | Role::Stopping(term) => (term.clone(), true),
            Role::Joining | Role::Waiting | Role::Orphaned { .. } => return None,
        };
        self.endanger();
        self.change(Role::Orphaned { term: term.clone(), over });
        Some(term)
    }

    /// A term without an elector is over: its deadline has passed, or its work has stopped.
    pub(super) fn end_orphaned(&mut self) {
        if let Some(term) = self.orphaned().cloned() {
            let reason = if term.is_yielded() { Reason::Resigned } else { Reason::Expired };
            let reason = term.end(reason);
            self.demote(&term, reason, Role::Orphaned { term: term.clone(), over: true });
        }
    }

    /// The work of a term without an elector has stopped: it may campaign again.
    pub(super) fn forget_orphaned(&mut self) {
        if self.orphaned().is_some() {
            self.change(Role::Waiting);
        }
    }

    /// Says that renewals fail, to the users of a term that stands.
    pub(super) fn endanger(&self) {
        let Role::Leading { term, .. } = &self.role else {
            return;
        };
        let info = TermInfo::new(term, term.deadline());
        let TermInfo { epoch, lease, valid_until, .. } = info;
        let election = &self.candidacy.name;
        warn!(election, %epoch, %lease, valid_until, "endangered");
        term.endanger();
        metrics::endangered(election);
        self.tell(Event::Endangered(info));
    }

    /// Somebody wants another candidate to lead. Tells the users, once a term, and returns whether
    /// the driver resigns: otherwise the holder of the term does.
    pub(super) fn resigns_for_the_holder(&self) -> bool {
        let Role::Leading { term, .. } = &self.role else {
            return false;
        };
        if term.ask_to_resign() {
            let epoch = term.epoch();
            info!(election = self.candidacy.name, %epoch, "asked to hand over");
            self.tell(Event::HandOver { epoch });
        }
        !term.resigns_itself()
    }

    /// Ends what stands of it.
    pub(super) fn end(&self, why: &str) {
        if let Some(term) = self.led().or(self.orphaned()) {
            term.end(Reason::Other(why.into()));
        }
    }

    pub(super) fn withdraw(self, cause: Option<Failure>) {
        let election = &self.candidacy.name;
        match &cause {
            Some(failure) => warn!(election, %failure, "withdrawn"),
            None => info!(election, "withdrawn"),
        }
        self.end("the candidacy has ended");
        self.tell(Event::Withdrawn(cause.clone()));
        self.sender.stage.change_if(|stage| {
            *stage = Stage::Over(cause);
            true
        });
    }

    /// Takes the role that follows a term, and tells the users of its end, unless they know.
    fn demote(&mut self, term: &Term, reason: Reason, role: Role) {
        let known = !matches!(self.role.stage(), Stage::Leading(_));
        self.change(role);
        if !known {
            let (epoch, lease) = (term.epoch(), term.lease());
            info!(election = self.candidacy.name, %epoch, %lease, %reason, "demoted");
            self.tell(Event::Demoted { epoch, reason });
        }
    }

    fn change(&mut self, role: Role) {
        self.role = role;
        let stage = self.role.stage();
        self.sender.stage.change_if(|seen| {
            let differs = mem::discriminant(seen) != mem::discriminant(&stage);
            if differs {
                *seen = stage;
            }
            differs
        });
    }
}
