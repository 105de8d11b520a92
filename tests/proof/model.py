"""The election as a state machine: its state, its actions and its invariant.

There are any number of elections, each a queue or a race, on any number of leases. The state keeps every
request that was sent, in sets that only grow: a request may land later, again or never. The clock of a candidate never loses against
the store's; `prove.py` proves apart that a worse clock, with its margin, comes to the same.

Each action is a function that returns when it may happen (its guard, in functions of their own that
begin with `may_`) and what it changes. Each conjunct of the invariant is a function with one sentence.
"""

from logic import all_of, any_of, choose, implies, larger, negate, put, put_where

# Sorts. A candidate is a part in one election on one lease; an elector has any number of elections on a
# lease, and one lease after the other. An element of `Request` is one landing of a grant or of a renewal:
# a request that lands twice is two elements that were sent at one moment. An element of `Read` is one
# search for the candidate's place, of one page or of several.
LEASE, ELECTION, CANDIDATE, REQUEST, READ = "Lease", "Election", "Candidate", "Request", "Read"
BOOL, INTEGER, REAL = "Bool", "Integer", "Real"
# Functions as arguments: what each clock shows, and which names a page covers.
CLOCKS, PAGE = "Clocks", "Page"

# Every field of the state: what it takes, and what it gives.
FIELDS = {
    # The store.
    "time": ((), REAL),
    "revision": ((), INTEGER),
    "alive": ((LEASE,), BOOL),
    "ends": ((LEASE,), REAL),  # The lease may be ended from then on.
    "ttl": ((LEASE,), REAL),
    "has_key": ((CANDIDATE,), BOOL),
    "created": ((CANDIDATE,), INTEGER),  # The create revision of the key.
    "gone": (
        (CANDIDATE, INTEGER),
        BOOL,
    ),  # The candidate's key of this create revision was deleted.
    "made": ((CANDIDATE, INTEGER), BOOL),  # The candidate's key was created at this revision.
    # What was sent.
    "sent": ((REQUEST,), BOOL),
    "sent_at": ((REQUEST,), REAL),  # By the store's clock.
    "mark": ((REQUEST,), REAL),  # By the elector's clock.
    "landed": ((REQUEST,), BOOL),
    "granted": ((REQUEST,), REAL),  # The time to live in the answer.
    "given_back": ((LEASE,), BOOL),  # The revocation of the lease was sent.
    "claimed": ((CANDIDATE,), BOOL),
    "removed": (
        (CANDIDATE, INTEGER),
        BOOL,
    ),  # The removal of the key was sent. It may not have landed.
    "wrote": ((CANDIDATE, INTEGER), BOOL),  # A write under the guard of an epoch was sent.
    "asked": ((READ,), BOOL),
    "asked_in": ((READ,), INTEGER),  # The stretch in which its last page was asked.
    "own": (
        (READ,),
        INTEGER,
    ),  # The create revision of the reader's own key, as a claim's answer told it.
    "passed": (
        (READ, CANDIDATE),
        BOOL,
    ),  # A page has shown that this candidate's key is not in front.
    "shown": ((READ, CANDIDATE), BOOL),  # A page has shown that this candidate's key is in front,
    "shown_created": ((READ, CANDIDATE), INTEGER),  # with this create revision.
    "answered": (
        (READ,),
        BOOL,
    ),  # The last page has shown the reader's own key, and the pages all that are in front.
    # The lease, as its elector knows it.
    "clock": ((LEASE,), REAL),
    "until": ((LEASE,), REAL),  # The deadline.
    "lapsed": ((LEASE,), BOOL),  # The elector has noticed that the deadline has passed.
    "stretch": ((LEASE,), INTEGER),  # How often the validity ended, or began again after it.
    # A candidate.
    "leads": ((CANDIDATE,), BOOL),  # It has said `elected`, and not yet `demoted`.
    "works": ((CANDIDATE,), BOOL),  # The work of its term has not yielded.
    "works_until": ((CANDIDATE,), REAL),  # The deadline of that work. A resignation freezes it.
    "epoch": ((CANDIDATE,), INTEGER),  # The epoch of its last term.
    # History.
    "led": ((CANDIDATE, INTEGER), BOOL),
    "newest": ((ELECTION,), INTEGER),  # The highest epoch of a term,
    "newest_leader": ((ELECTION,), CANDIDATE),  # and who led in it.
}

# What never changes.
CONSTANTS = {
    "is_race": ((ELECTION,), BOOL),
    "lease_of": ((CANDIDATE,), LEASE),
    "election_of": ((CANDIDATE,), ELECTION),
    "is_grant": ((REQUEST,), BOOL),
    "sender": ((REQUEST,), LEASE),
    "reader": ((READ,), CANDIDATE),
}

# The rules that can be left out, to see that the proof needs them.
RULES = (
    "freshness",  # A read counts only in the stretch of validity in which it was asked.
    "clock",  # Who is elected, or asked whether it leads, looks at the clock.
    "sending",  # A deadline counts from the sending of a request, not from its answer.
    "yielding",  # Nothing is removed, and no next term begins, while the work of a term may run.
    "guard",  # A write changes nothing unless the key of its epoch is there.
    "epoch",  # An epoch that was led or removed is dead.
    "complete",  # A read counts only if its pages have shown all keys in front, or that there are none.
    "margin",  # A deadline is earlier by what the clock may lose.
)


class State:
    """A state, over terms of the solver or over plain values.

    `for_each(sorts, body)` says that a body holds for all values. `rules` are the ones that hold.
    """

    def __init__(self, fields, for_each, rules=RULES):
        self.__dict__.update(fields)
        self.fields, self.for_each, self.rules = fields, for_each, frozenset(rules)

    def after(self, changes):
        """The state with some fields changed."""
        return State({**self.fields, **changes}, self.for_each, self.rules)

    def keeps(self, rule, condition):
        """The condition, unless its rule is left out."""
        return condition if rule in self.rules else True


# What the guards and the invariant speak of.


def is_valid(state, lease):
    """The deadline of the lease is ahead, by the clock at this moment."""
    return state.clock(lease) < state.until(lease)


def is_at_work(state, candidate):
    """The work of a term may run: it has not yielded, and its deadline is ahead by the clock."""
    ahead = state.clock(state.lease_of(candidate)) < state.works_until(candidate)
    return all_of(state.works(candidate), state.keeps("clock", ahead))


def is_in_front(state, other, candidate, created):
    """The key of another candidate of the same election is older than a create revision."""
    return all_of(
        *(other != candidate, state.election_of(other) == state.election_of(candidate)),
        *(state.has_key(other), state.created(other) < created),
    )


def is_there(state, candidate, created):
    """The candidate's key is there, with this create revision."""
    return all_of(state.has_key(candidate), state.created(candidate) == created)


def is_first(state, candidate, created):
    """The candidate's key is there, with this create revision, and nobody is in front."""
    return all_of(
        is_there(state, candidate, created),
        state.for_each(
            [CANDIDATE], lambda other: negate(is_in_front(state, other, candidate, created))
        ),
    )


def is_fresh(state, read):
    """The read was asked in the present stretch of the lease's validity."""
    same = state.asked_in(read) == state.stretch(state.lease_of(state.reader(read)))
    return state.keeps("freshness", same)


def deletion(state, deleted):
    """Changes that delete the keys of some candidates. (That the revision rises is an action of its own.)"""

    def is_deleted(candidate, created):
        there = is_there(state, candidate, created)
        return any_of(state.gone(candidate, created), all_of(deleted(candidate), there))

    return {"has_key": put_where(state.has_key, deleted, False), "gone": is_deleted}


def end_of(state, lease):
    """Changes that end a lease, and delete its keys."""
    return {
        "alive": put(state.alive, lease, False),
        **deletion(state, lambda candidate: state.lease_of(candidate) == lease),
    }


# Actions. Time.


def time_passes(state, later: REAL, clocks: CLOCKS):
    """The store's clock goes on, and each elector's by at least as much: a pause is nothing else."""
    guard = all_of(
        state.time <= later,
        state.for_each(
            [LEASE], lambda lease: later - state.time <= clocks(lease) - state.clock(lease)
        ),
    )
    return guard, {"time": later, "clock": clocks}


def look_at_the_clock(state, lease):
    """Changes of an elector that looks at its clock: if the deadline has passed, all terms on the lease end."""
    over = all_of(negate(is_valid(state, lease)), negate(state.lapsed(lease)))
    ends = lambda candidate: all_of(state.lease_of(candidate) == lease, over)
    return {
        "lapsed": put(state.lapsed, lease, any_of(state.lapsed(lease), over)),
        "stretch": put(state.stretch, lease, state.stretch(lease) + choose(over, 1, 0)),
        "leads": put_where(state.leads, ends, False),
    }


def deadline_passes(state, lease: LEASE):
    """An elector sees that the deadline has passed."""
    return negate(is_valid(state, lease)), look_at_the_clock(state, lease)


# Actions. The lease.


def send_request(state, request: REQUEST):
    """An elector asks for its lease, or for its renewal, at any moment."""
    return negate(state.sent(request)), {
        "sent": put(state.sent, request, True),
        "sent_at": put(state.sent_at, request, state.time),
        "mark": put(state.mark, request, state.clock(state.sender(request))),
    }


def may_land(state, request):
    """A request was sent, at any time before, and has not landed."""
    return all_of(state.sent(request), negate(state.landed(request)))


def grant_lands(state, request: REQUEST, ttl: REAL):
    """The store makes a lease, without keys, unless its id is in use. It may have been: the request may be old."""
    lease = state.sender(request)
    guard = all_of(may_land(state, request), state.is_grant(request), negate(state.alive(lease)))
    return all_of(guard, 0 < ttl), {
        "alive": put(state.alive, lease, True),
        "ends": put(state.ends, lease, state.time + ttl),
        "ttl": put(state.ttl, lease, ttl),
        "landed": put(state.landed, request, True),
        "granted": put(state.granted, request, ttl),
    }


def renewal_lands(state, request: REQUEST):
    """The store renews a lease that lives."""
    lease = state.sender(request)
    guard = all_of(may_land(state, request), negate(state.is_grant(request)), state.alive(lease))
    return guard, {
        "ends": put(state.ends, lease, state.time + state.ttl(lease)),
        "landed": put(state.landed, request, True),
        "granted": put(state.granted, request, state.ttl(lease)),
    }


def may_extend(state, request, until):
    """An acknowledgement is good until the sending plus the time that the store granted, at most."""
    now = state.clock(state.sender(request))
    counted_from = state.mark(request) if "sending" in state.rules else now
    return all_of(state.landed(request), until <= counted_from + state.granted(request))


def take_acknowledgement(state, request: REQUEST, until: REAL):
    """An elector looks at the clock, and then takes the answer to a grant or a renewal, however late."""
    lease = state.sender(request)
    seen = state.after(look_at_the_clock(state, lease))
    extends = seen.until(lease) < until
    begins = all_of(extends, seen.lapsed(lease))
    leads_on = lambda candidate: all_of(
        *(seen.lease_of(candidate) == lease, seen.leads(candidate), extends)
    )
    return may_extend(state, request, until), {
        "until": put(seen.until, lease, choose(extends, until, seen.until(lease))),
        "lapsed": put(seen.lapsed, lease, all_of(seen.lapsed(lease), negate(extends))),
        "stretch": put(seen.stretch, lease, seen.stretch(lease) + choose(begins, 1, 0)),
        "leads": seen.leads,
        "works_until": put_where(seen.works_until, leads_on, until),
    }


def lease_ends(state, lease: LEASE):
    """The store ends a lease that was not renewed, and deletes its keys."""
    guard = all_of(state.alive(lease), state.ends(lease) <= state.time)
    return guard, end_of(state, lease)


def may_give_back(state, lease):
    """No work of any term on the lease may run."""
    rests = lambda it: implies(state.lease_of(it) == lease, negate(is_at_work(state, it)))
    return state.keeps("yielding", state.for_each([CANDIDATE], rests))


def give_back(state, lease: LEASE):
    """An elector asks for the revocation of its lease, for any reason, and never leads on it again."""
    on_lease = lambda candidate: state.lease_of(candidate) == lease
    return may_give_back(state, lease), {
        "given_back": put(state.given_back, lease, True),
        "leads": put_where(state.leads, on_lease, False),
    }


def revocation_lands(state, lease: LEASE):
    """The store revokes a lease, now, much later or again, and deletes its keys."""
    return all_of(state.given_back(lease), state.alive(lease)), end_of(state, lease)


# Actions. The key.


def send_claim(state, candidate: CANDIDATE):
    """A candidate asks for its key, at any moment, for the first time or again."""
    return True, {"claimed": put(state.claimed, candidate, True)}


def claim_lands(state, candidate: CANDIDATE):
    """The store makes a key under a lease that lives; in a race only if nobody has the key."""
    revision, election = state.revision + 1, state.election_of(candidate)
    free = lambda other: implies(state.election_of(other) == election, negate(state.has_key(other)))
    guard = all_of(
        *(state.claimed(candidate), state.alive(state.lease_of(candidate))),
        negate(state.has_key(candidate)),
        implies(state.is_race(election), state.for_each([CANDIDATE], free)),
    )
    return guard, {
        "has_key": put(state.has_key, candidate, True),
        "created": put(state.created, candidate, revision),
        "made": put(state.made, candidate, revision, True),
        "revision": revision,
    }


def may_remove(state, candidate, created):
    """A key may be removed unless the work of the term of this epoch may run."""
    in_term = all_of(is_at_work(state, candidate), state.epoch(candidate) == created)
    return all_of(created <= state.revision, state.keeps("yielding", negate(in_term)))


def send_removal(state, candidate: CANDIDATE, created: INTEGER):
    """A candidate asks for the removal of its key, waiting or after a term, for any reason."""
    leads_on = all_of(state.leads(candidate), state.epoch(candidate) != created)
    return may_remove(state, candidate, created), {
        "removed": put(state.removed, candidate, created, True),
        "leads": put(state.leads, candidate, leads_on),
    }


def removal_lands(state, candidate: CANDIDATE, created: INTEGER):
    """The store deletes the key if it still has the create revision that the removal names."""
    guard = all_of(state.removed(candidate, created), is_there(state, candidate, created))
    return guard, deletion(state, lambda other: other == candidate)


def revision_rises(state):
    """Something is written or deleted."""
    return True, {"revision": state.revision + 1}


# Actions. The read of a candidate's place, page by page, at one revision or at several.


def asks(state, read):
    """Changes of an elector that looks at the clock, and sends the read's first page or the next one."""
    lease = state.lease_of(state.reader(read))
    changes = look_at_the_clock(state, lease)
    stretch = state.after(changes).stretch(lease)
    return {**changes, "asked_in": put(state.asked_in, read, stretch)}


def is_open(state, read):
    """A read was asked, and has no answer yet."""
    return all_of(state.asked(read), negate(state.answered(read)))


def send_read(state, read: READ, created: INTEGER):
    """A candidate that was told its key's create revision asks for its place, on a valid lease or not."""
    known = state.made(state.reader(read), created)
    return all_of(negate(state.asked(read)), known), {
        **asks(state, read),
        "asked": put(state.asked, read, True),
        "own": put(state.own, read, created),
    }


def ask_next_page(state, read: READ):
    """A candidate asks for the next page, or for one that failed, in the same stretch or in a later one."""
    return is_open(state, read), asks(state, read)


def page_is_read(state, read: READ, page: PAGE):
    """A page shows, at one revision, that none of some keys is in front."""
    behind = lambda other: negate(is_in_front(state, other, state.reader(read), state.own(read)))
    guard = state.for_each([CANDIDATE], lambda other: implies(page(other), behind(other)))
    passes = lambda which, other: all_of(which == read, page(other))
    return all_of(is_open(state, read), guard), {"passed": put_where(state.passed, passes, True)}


def key_in_front_is_read(state, read: READ, front: CANDIDATE):
    """A page shows, at one revision, a key in front."""
    in_front = is_in_front(state, front, state.reader(read), state.own(read))
    return all_of(is_open(state, read), in_front), {
        "shown": put(state.shown, read, front, True),
        "shown_created": put(state.shown_created, read, front, state.created(front)),
    }


def place_is_read(state, read: READ):
    """The last page shows that the reader's own key is intact, and the pages together who is in front."""
    is_known = lambda other: any_of(state.passed(read, other), state.shown(read, other))
    complete = state.keeps("complete", state.for_each([CANDIDATE], is_known))
    intact = is_there(state, state.reader(read), state.own(read))
    return all_of(is_open(state, read), intact, complete), {
        "answered": put(state.answered, read, True)
    }


# Actions. The term.


def may_be_elected(state, candidate, read):
    """The read counts, the lease is valid at this moment, and the epoch neither led nor was removed."""
    lease, epoch = state.lease_of(candidate), state.own(read)
    living = all_of(negate(state.removed(candidate, epoch)), negate(state.led(candidate, epoch)))
    return all_of(
        *(state.reader(read) == candidate, negate(state.given_back(lease))),
        is_fresh(state, read),
        state.keeps("clock", is_valid(state, lease)),
        state.keeps("epoch", living),
        state.keeps("yielding", negate(is_at_work(state, candidate))),
    )


def term(state, candidate, epoch):
    """Changes that begin a term."""
    election = state.election_of(candidate)
    newest, leader = state.newest(election), state.newest_leader(election)
    return {
        "leads": put(state.leads, candidate, True),
        "works": put(state.works, candidate, True),
        "works_until": put(state.works_until, candidate, state.until(state.lease_of(candidate))),
        "epoch": put(state.epoch, candidate, epoch),
        "led": put(state.led, candidate, epoch, True),
        "newest": put(state.newest, election, larger(newest, epoch)),
        "newest_leader": put(
            state.newest_leader, election, choose(newest < epoch, candidate, leader)
        ),
    }


def elected(state, candidate: CANDIDATE, read: READ):
    """A candidate is elected because all keys that a read has shown in front, if any, were deleted since, as it was told."""
    gone = lambda it: implies(
        state.shown(read, it), state.gone(it, state.shown_created(read, it))
    )
    guard = all_of(
        *(state.answered(read), state.for_each([CANDIDATE], gone)),
        may_be_elected(state, candidate, read),
    )
    return guard, term(state, candidate, state.own(read))


def demoted(state, candidate: CANDIDATE):
    """A term ends for any reason: the work is told to stop, and keeps its deadline."""
    return state.leads(candidate), {"leads": put(state.leads, candidate, False)}


def yielded(state, candidate: CANDIDATE):
    """The work of a term has stopped."""
    return state.works(candidate), {
        "leads": put(state.leads, candidate, False),
        "works": put(state.works, candidate, False),
    }


def send_write(state, candidate: CANDIDATE, epoch: INTEGER):
    """The work writes under the guard of its epoch, in time or after a pause."""
    return state.led(candidate, epoch), {"wrote": put(state.wrote, candidate, epoch, True)}


def write_lands(state, candidate: CANDIDATE, epoch: INTEGER):
    """A guarded write changes something, now or much later, because the key of its epoch is there."""
    holds = state.keeps("guard", is_there(state, candidate, epoch))
    return all_of(state.wrote(candidate, epoch), holds), {"revision": state.revision + 1}


# Actions that only the proof of law 2 without clocks allows.


def lease_ends_at_any_time(state, lease: LEASE):
    """The store breaks its word, or an operator revokes the lease."""
    return state.alive(lease), end_of(state, lease)


def operator_removes(state, candidate: CANDIDATE):
    """An operator deletes a candidate's key."""
    return state.has_key(candidate), deletion(state, lambda other: other == candidate)


ACTIONS = (
    *(time_passes, deadline_passes),
    *(send_request, grant_lands, renewal_lands, take_acknowledgement),
    *(lease_ends, give_back, revocation_lands),
    *(send_claim, claim_lands, send_removal, removal_lands, revision_rises),
    *(send_read, ask_next_page, page_is_read, key_in_front_is_read, place_is_read),
    *(elected, demoted, yielded, send_write, write_lands),
)

# Without clocks a lease may end, and a key be removed, at any time. Only what no clock tells is kept.
ACTIONS_WITHOUT_CLOCK = (*ACTIONS, lease_ends_at_any_time, operator_removes)
RULES_WITHOUT_CLOCK = ("guard", "complete")


def initial(state):
    """Nothing was sent, no lease was made, and no deadline is ahead."""
    each = state.for_each
    nothing_named = lambda it, at: negate(
        any_of(
            *(state.made(it, at), state.gone(it, at), state.removed(it, at)),
            *(state.wrote(it, at), state.led(it, at)),
        )
    )
    return all_of(
        *(state.revision == 0, each([ELECTION], lambda it: state.newest(it) == 0)),
        each([LEASE], lambda it: all_of(negate(state.alive(it)), negate(state.given_back(it)))),
        each([LEASE], lambda it: all_of(state.ends(it) <= state.time, negate(is_valid(state, it)))),
        each([LEASE], lambda it: all_of(state.lapsed(it), state.stretch(it) == 0)),
        each([CANDIDATE], lambda it: all_of(negate(state.has_key(it)), negate(state.claimed(it)))),
        each([CANDIDATE], lambda it: all_of(negate(state.leads(it)), negate(state.works(it)))),
        each([CANDIDATE, INTEGER], nothing_named),
        each([REQUEST], lambda it: all_of(negate(state.sent(it)), negate(state.landed(it)))),
        each([READ], lambda it: all_of(negate(state.asked(it)), negate(state.answered(it)))),
        each([READ, CANDIDATE], lambda it, other: negate(state.passed(it, other))),
        each([READ, CANDIDATE], lambda it, other: negate(state.shown(it, other))),
    )


# The invariant. Its conjuncts, in order; those that hold without any clock are marked.

INVARIANT = []
INVARIANT_WITHOUT_CLOCK = []


def conjunct(function):
    """Adds a conjunct that rests on the clocks."""
    INVARIANT.append(function)
    return function


def timeless(function):
    """Adds a conjunct that holds also without any clock."""
    INVARIANT_WITHOUT_CLOCK.append(function)
    return conjunct(function)


@timeless
def keys_have_living_leases(state):
    """A key has a living lease, because the end of a lease deletes its keys."""
    return state.for_each(
        [CANDIDATE], lambda it: implies(state.has_key(it), state.alive(state.lease_of(it)))
    )


@timeless
def a_key_is_the_newest_of_its_candidate(state):
    """A key was made at a revision of the past, and it is the newest one that its candidate has made."""

    def is_past(it, at):
        newest = implies(state.has_key(it), at <= state.created(it))
        return all_of(0 < at, at <= state.revision, newest)

    made = lambda it: implies(state.has_key(it), state.made(it, state.created(it)))
    return all_of(
        state.for_each([CANDIDATE], made),
        state.for_each(
            [CANDIDATE, INTEGER], lambda it, at: implies(state.made(it, at), is_past(it, at))
        ),
    )


@timeless
def two_keys_have_two_revisions(state):
    """Two keys have two create revisions, because each claim has a revision of its own."""

    def is_one(one, other, at):
        return implies(all_of(state.made(one, at), state.made(other, at)), one == other)

    return state.for_each([CANDIDATE, CANDIDATE, INTEGER], is_one)


@timeless
def a_race_has_one_key(state):
    """A race has one key, because it is claimed only where there is none."""

    def is_one(one, other):
        election = state.election_of(one)
        both = all_of(
            *(state.is_race(election), state.election_of(other) == election),
            *(state.has_key(one), state.has_key(other)),
        )
        return implies(both, one == other)

    return state.for_each([CANDIDATE, CANDIDATE], is_one)


@timeless
def epochs_are_from_the_past(state):
    """What was removed, deleted or written names a revision of the past, so it means no key that comes later."""
    named = lambda it, at: any_of(state.removed(it, at), state.gone(it, at), state.wrote(it, at))
    past = lambda it, at: implies(named(it, at), at <= state.revision)
    return state.for_each([CANDIDATE, INTEGER], past)


@timeless
def reads_are_of_a_key_of_the_past(state):
    """A read is of the reader's own key, which was created in the past, and has shown in front only what is older."""
    of_own_key = lambda it: state.made(state.reader(it), state.own(it))

    def is_older(read, other):
        created = state.shown_created(read, other)
        older = all_of(other != state.reader(read), 0 < created, created < state.own(read))
        return implies(state.shown(read, other), all_of(state.asked(read), older))

    return all_of(
        state.for_each([READ], lambda it: implies(state.asked(it), of_own_key(it))),
        state.for_each([READ, CANDIDATE], is_older),
    )


@timeless
def what_a_page_passed_is_not_in_front(state):
    """A key that was not in front when a page was read never is, because new keys come behind."""

    def is_behind(read, other):
        in_front = is_in_front(state, other, state.reader(read), state.own(read))
        return implies(state.passed(read, other), all_of(state.asked(read), negate(in_front)))

    return state.for_each([READ, CANDIDATE], is_behind)


@timeless
def who_is_in_front_is_as_shown(state):
    """If a candidate whose key was shown in front still has one in front, it is that key."""

    def is_same(read, other):
        in_front = is_in_front(state, other, state.reader(read), state.own(read))
        same = state.created(other) == state.shown_created(read, other)
        return implies(all_of(state.shown(read, other), in_front), same)

    return state.for_each([READ, CANDIDATE], is_same)


@timeless
def answers_are_complete(state):
    """An answered read has passed all keys, but for those that it has shown in front."""

    def is_complete(read, other):
        known = any_of(state.passed(read, other), state.shown(read, other))
        return implies(state.answered(read), all_of(state.asked(read), known))

    return state.for_each([READ, CANDIDATE], is_complete)


@timeless
def what_is_gone_does_not_come_back(state):
    """A key that was deleted does not come back, because its claim makes it at a newer revision."""
    return state.for_each(
        [CANDIDATE],
        lambda it: implies(state.has_key(it), negate(state.gone(it, state.created(it)))),
    )


@timeless
def no_key_is_older_than_the_newest_term(state):
    """No key is older than its election's newest term, because that one's key was first, and new ones come behind."""

    def is_newer(it):
        return state.newest(state.election_of(it)) <= state.created(it)

    return state.for_each([CANDIDATE], lambda it: implies(state.has_key(it), is_newer(it)))


@timeless
def an_epoch_belongs_to_one_leader(state):
    """An epoch is the create revision of its leader's key, and at most its election's newest one."""

    def belongs(it, epoch):
        return all_of(state.made(it, epoch), epoch <= state.newest(state.election_of(it)))

    return state.for_each(
        [CANDIDATE, INTEGER],
        lambda it, epoch: implies(state.led(it, epoch), belongs(it, epoch)),
    )


@timeless
def the_newest_epoch_was_led(state):
    """The newest epoch of an election is one that a candidate of it has led in, or there was no term."""

    def was_led(election):
        newest, leader = state.newest(election), state.newest_leader(election)
        led = all_of(state.led(leader, newest), state.election_of(leader) == election)
        return all_of(0 <= newest, newest <= state.revision, any_of(newest == 0, led))

    return state.for_each([ELECTION], was_led)


@timeless
def who_writes_has_led(state):
    """A guarded write names an epoch that its writer has led in."""
    return state.for_each(
        [CANDIDATE, INTEGER],
        lambda it, epoch: implies(state.wrote(it, epoch), state.led(it, epoch)),
    )


@conjunct
def requests_are_from_the_past(state):
    """What landed was sent before, and since the sending the elector's clock has gone on by no less than the store's."""

    def is_past(it):
        shown = state.clock(state.sender(it)) - state.mark(it)
        passed = state.time - state.sent_at(it)
        return all_of(0 <= passed, passed <= shown)

    return state.for_each(
        [REQUEST],
        lambda it: all_of(
            implies(state.landed(it), state.sent(it)), implies(state.sent(it), is_past(it))
        ),
    )


@conjunct
def an_ended_lease_had_its_time(state):
    """A lease lives, or its time is over, or it was given back."""
    return state.for_each(
        [LEASE],
        lambda it: any_of(state.alive(it), state.ends(it) <= state.time, state.given_back(it)),
    )


@conjunct
def a_lease_ends_within_its_time(state):
    """A living lease ends at most its time to live from now, so a renewal never shortens it."""
    return state.for_each(
        [LEASE],
        lambda it: implies(state.alive(it), state.ends(it) <= state.time + state.ttl(it)),
    )


@conjunct
def what_was_acknowledged_lives(state):
    """A lease lasts from the sending of a request for the time granted, also over a later grant of its id."""

    def lasts(it):
        lease = state.sender(it)
        granted = state.sent_at(it) + state.granted(it)
        return any_of(granted <= state.ends(lease), state.given_back(lease))

    return state.for_each([REQUEST], lambda it: implies(state.landed(it), lasts(it)))


@conjunct
def no_deadline_is_later_than_the_stores(state):
    """As long as a deadline is ahead, the store's end of the lease is at least as far ahead."""

    def left(it):
        return state.until(it) - state.clock(it) <= state.ends(it) - state.time

    return state.for_each(
        [LEASE],
        lambda it: implies(all_of(is_valid(state, it), negate(state.given_back(it))), left(it)),
    )


@conjunct
def a_lapse_is_noticed_after_the_deadline(state):
    """A lease whose end of validity was noticed has no deadline ahead."""
    return state.for_each(
        [LEASE], lambda it: implies(state.lapsed(it), negate(is_valid(state, it)))
    )


@conjunct
def reads_are_of_a_past_stretch(state):
    """No read was asked in a stretch that has not begun, so none counts in the next one."""
    stretch = lambda it: state.stretch(state.lease_of(state.reader(it)))
    return state.for_each(
        [READ], lambda it: implies(state.asked(it), state.asked_in(it) <= stretch(it))
    )


@conjunct
def a_fresh_read_still_holds(state):
    """The key that a fresh answer has shown is there while the lease is valid, unless its removal was sent."""

    def counts(read):
        candidate = state.reader(read)
        lease = state.lease_of(candidate)
        return all_of(
            state.answered(read),
            *(is_fresh(state, read), is_valid(state, lease), negate(state.given_back(lease))),
            negate(state.removed(candidate, state.own(read))),
        )

    holds = lambda read: is_there(state, state.reader(read), state.own(read))
    return state.for_each([READ], lambda read: implies(counts(read), holds(read)))


@conjunct
def a_term_is_within_its_lease(state):
    """The work's deadline is at most the lease's, and its epoch was led."""

    def is_within(it):
        until = state.until(state.lease_of(it))
        return all_of(state.works_until(it) <= until, state.led(it, state.epoch(it)))

    return state.for_each([CANDIDATE], lambda it: implies(state.works(it), is_within(it)))


@conjunct
def who_leads_works(state):
    """Who leads works, until the lease's deadline, on a lease that has not lapsed and was not given back."""

    def works(it):
        lease = state.lease_of(it)
        return all_of(
            *(state.works(it), state.works_until(it) == state.until(lease)),
            *(negate(state.lapsed(lease)), negate(state.given_back(lease))),
        )

    return state.for_each([CANDIDATE], lambda it: implies(state.leads(it), works(it)))


@conjunct
def the_workers_key_is_first(state):
    """While work may run its key is there, nobody is in front, and the removal of neither key nor lease was sent."""

    def is_safe(it, other):
        epoch = state.epoch(it)
        return all_of(
            *(is_there(state, it, epoch), negate(state.removed(it, epoch))),
            negate(state.given_back(state.lease_of(it))),
            negate(is_in_front(state, other, it, epoch)),
        )

    return state.for_each(
        [CANDIDATE, CANDIDATE],
        lambda it, other: implies(is_at_work(state, it), is_safe(it, other)),
    )


@conjunct
def terms_do_not_overlap(state):
    """At most one candidate of an election has work that may run."""

    def is_one(one, other):
        same = state.election_of(one) == state.election_of(other)
        return implies(all_of(same, is_at_work(state, one), is_at_work(state, other)), one == other)

    return state.for_each([CANDIDATE, CANDIDATE], is_one)


# The laws: of a state, or of an action, by the state before it and its arguments.


def regards_itself_as_leader(state, candidate):
    """Asked whether it leads, a candidate answers by the clock at that moment."""
    return all_of(
        state.leads(candidate), state.keeps("clock", is_valid(state, state.lease_of(candidate)))
    )


def law_1_one_leader(state):
    """At most one candidate regards itself as leader, and while it does, no other one's work may run."""

    def is_one(one, other):
        same = state.election_of(one) == state.election_of(other)
        active = any_of(regards_itself_as_leader(state, other), is_at_work(state, other))
        return implies(all_of(same, regards_itself_as_leader(state, one), active), one == other)

    return state.for_each([CANDIDATE, CANDIDATE], is_one)


def law_1_one_work(state):
    """At most one candidate's work may run, also after it was told to stop."""
    return terms_do_not_overlap(state)


def law_2_one_leader_for_an_epoch(state):
    """An epoch belongs to one leader."""

    def is_one(one, other, epoch):
        return implies(all_of(state.led(one, epoch), state.led(other, epoch)), one == other)

    return state.for_each([CANDIDATE, CANDIDATE, INTEGER], is_one)


def law_2_no_write_of_a_former_leader(state, candidate, epoch):
    """A guarded write changes nothing once a term of a newer epoch has begun."""
    return state.newest(state.election_of(candidate)) <= epoch


def law_3_elected_is_true(state, candidate, read):
    """The elected candidate's key is there and first, its epoch is the term's, and the deadline is ahead."""
    return all_of(
        is_first(state, candidate, state.own(read)), is_valid(state, state.lease_of(candidate))
    )


def law_6_epochs_rise(state, candidate, read):
    """The epoch of a term is higher than that of every term before."""
    return state.newest(state.election_of(candidate)) < state.own(read)


def law_7_nothing_is_removed_under_work(state):
    """Neither the removal of the leader's key nor the revocation of its lease was sent while its work may run."""

    def is_kept(it):
        given_back = state.given_back(state.lease_of(it))
        return negate(any_of(state.removed(it, state.epoch(it)), given_back))

    return state.for_each([CANDIDATE], lambda it: implies(is_at_work(state, it), is_kept(it)))


def law_7_only_its_own_key_is_removed(state, candidate, created):
    """A removal deletes the key of its own create revision, and never one whose work may run."""
    return all_of(negate(is_at_work(state, candidate)), state.made(candidate, created))


LAWS = (
    *(law_1_one_leader, law_1_one_work),
    *(law_2_one_leader_for_an_epoch, law_7_nothing_is_removed_under_work),
)
LAWS_OF_ACTIONS = (
    (write_lands, law_2_no_write_of_a_former_leader),
    *((elected, law_3_elected_is_true), (elected, law_6_epochs_rise)),
    (removal_lands, law_7_only_its_own_key_is_removed),
)
LAWS_WITHOUT_CLOCK = (law_2_one_leader_for_an_epoch,)
LAWS_OF_ACTIONS_WITHOUT_CLOCK = ((write_lands, law_2_no_write_of_a_former_leader),)


# Laws of a step, by the states before and after it.


def front_only_shrinks(before, after):
    """No action makes a key at a revision that the store has reached, so what is in front of a key only shrinks."""

    def was_there(it, revision):
        in_front = all_of(after.has_key(it), after.created(it) < revision)
        return implies(
            all_of(in_front, revision <= before.revision),
            is_there(before, it, after.created(it)),
        )

    return before.for_each([CANDIDATE, INTEGER], was_there)


def what_was_sent_stays(before, after):
    """No action forgets what was sent, because it may land at any later time."""

    def stays(sorts, *names):
        fields = [(getattr(before, name), getattr(after, name)) for name in names]
        return before.for_each(
            sorts, lambda *at: all_of(*(implies(was(*at), is_(*at)) for was, is_ in fields))
        )

    return all_of(
        stays([LEASE], "given_back"),
        stays([CANDIDATE], "claimed"),
        stays([CANDIDATE, INTEGER], "made", "gone", "removed", "wrote", "led"),
        stays([REQUEST], "sent", "landed"),
        stays([READ], "asked", "answered"),
        stays([READ, CANDIDATE], "passed", "shown"),
    )


STEPS = (front_only_shrinks, what_was_sent_stays)
