"""Searches all histories of two candidates, up to a bound, with the model's own actions over numbers.

The model is not empty: an ordinary handover is found from the initial state. Each rule is needed: without
it two candidates lead at one moment. With all rules no history up to the same bound has two leaders.
The bound: one election of two candidates, each on a lease of its own that lasts for one unit of time, and
one unit of time passes. Alice's first grant, her read, her removal and all ends of leases may come at any
time. Her other requests, and Bob's, are answered at once.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import model
from logic import all_of

ALICE, BOB = "alice", "bob"
TTL, LAST_TIME, LAST_REVISION = 1, 1, 3
LATE, GRANT, RENEWAL, GRANT_OF_BOB = "the late grant", "the grant", "the renewal", "bob's grant"
READ, READ_OF_BOB = "alice's read", "bob's read"

# A candidate and its lease bear one name.
UNIVERSE = {
    model.LEASE: (ALICE, BOB),
    model.ELECTION: ("election",),
    model.CANDIDATE: (ALICE, BOB),
    model.REQUEST: (LATE, GRANT, RENEWAL, GRANT_OF_BOB),
    model.READ: (READ, READ_OF_BOB),
    model.INTEGER: tuple(range(LAST_REVISION + 1)),
}
SENDER = {LATE: ALICE, GRANT: ALICE, RENEWAL: ALICE, GRANT_OF_BOB: BOB}
READER = {READ: ALICE, READ_OF_BOB: BOB}
NOTHING = {model.BOOL: False, model.INTEGER: 0, model.REAL: 0, model.CANDIDATE: ALICE}


def for_each(sorts, body):
    """Whether a body holds for all values of the universe."""
    return all(body(*values) for values in itertools.product(*(UNIVERSE[it] for it in sorts)))


def places(takes):
    """All arguments that a field takes."""
    return list(itertools.product(*(UNIVERSE[sort] for sort in takes)))


PLACES = {name: places(takes) for name, (takes, _) in model.FIELDS.items()}
ROW = {name: index for index, name in enumerate(model.FIELDS)}
COLUMN = {name: {place: at for at, place in enumerate(them)} for name, them in PLACES.items()}


def tabulate(name, field):
    """The values of a field at all its places."""
    return field if PLACES[name] == [()] else tuple(field(*place) for place in PLACES[name])


class Numbers(model.State):
    """A state over tables, each of which becomes a function when it is asked for."""

    def __init__(self, tables, constants, rules):
        super().__init__({}, for_each, rules)
        self.tables = tables
        self.__dict__.update(constants)

    def __getattr__(self, name):
        table, column = self.tables[ROW[name]], COLUMN[name]
        field = (lambda *place: table[column[place]]) if isinstance(table, tuple) else table
        setattr(self, name, field)
        return field

    def after(self, changes):
        """The state with some fields changed."""
        other = Numbers(self.tables, {}, self.rules)
        other.__dict__.update({**self.__dict__, **changes})
        return other


class Search:
    """A search of all histories, with some rules, in a queue or a race."""

    def __init__(self, moves, is_race, left_out=None):
        self.moves = tuple(moves())
        self.rules = frozenset(rule for rule in model.RULES if rule != left_out)
        self.constants = {
            "is_race": lambda election: is_race,
            "lease_of": lambda candidate: candidate,
            "election_of": lambda candidate: "election",
            "is_grant": lambda request: request != RENEWAL,
            "sender": SENDER.get,
            "reader": READER.get,
        }

    def initial(self):
        """The initial state: nothing was sent."""
        filled = {
            name: (NOTHING[gives],) * len(PLACES[name]) if takes else NOTHING[gives]
            for name, (takes, gives) in model.FIELDS.items()
        }
        filled["lapsed"] = (True,) * len(PLACES["lapsed"])
        tables = tuple(filled.values())
        state = Numbers(tables, self.constants, self.rules)
        assert model.initial(state)
        return state

    def follow(self, state, move):
        """The state after some actions in a row; none if one of them may not happen."""
        for action, *arguments in move:
            guard, changes = action(state, *(it(state) if callable(it) else it for it in arguments))
            if not guard:
                return None
            tables = list(state.tables)
            for name, field in changes.items():
                tables[ROW[name]] = tabulate(name, field)
            state = Numbers(tuple(tables), self.constants, self.rules)
        return state

    def find(self, goals):
        """The shortest history to each goal that is reached, and how many states there are.

        The search ends when all goals are reached, or when no state is left.
        """
        first, found = self.initial(), {}
        seen, queue = {first.tables: None}, deque([first])
        while queue and len(found) < len(goals):
            state = queue.popleft()
            for goal in goals:
                if goal not in found and goal(state):
                    found[goal] = history(seen, state.tables)
            for name, move in self.moves:
                after = self.follow(state, move)
                if after is not None and after.tables not in seen:
                    seen[after.tables] = (state.tables, name)
                    queue.append(after)
        return found, len(seen)


def history(seen, state):
    """The names of the moves that led to a state."""
    names = []
    while seen[state]:
        state, name = seen[state]
        names.append(name)
    return names[::-1]


def until_of(request):
    """The latest deadline that an acknowledgement of a request allows."""

    def until(state):
        now = state.clock(SENDER[request])
        return (state.mark(request) if "sending" in state.rules else now) + TTL

    return until


def tick(state):
    """Time and all clocks go on by one, up to the bound."""
    if state.time >= LAST_TIME:
        return False, {}
    return model.time_passes(state, state.time + 1, lambda lease: state.clock(lease) + 1)


def claim(state, candidate):
    """A claim lands, up to the bound."""
    if state.revision >= LAST_REVISION:
        return False, {}
    return model.claim_lands(state, candidate)


def newest_key(candidate):
    """The create revision of the newest key of a candidate."""
    return lambda state: max(
        (at for at in UNIVERSE[model.INTEGER] if state.made(candidate, at)), default=0
    )


def page(names):
    """A page that covers these candidates' keys."""
    return lambda state: lambda other: other in names


def granted(request, landing):
    """A move: a request is sent, lands and is acknowledged at once."""
    answer = (model.take_acknowledgement, request, until_of(request))
    return f"{request} is acknowledged", [(model.send_request, request), landing, answer]


def usual_moves():
    """Both get a lease and a key, read, and are elected; leases end."""
    yield "time passes", [(tick,)]
    yield granted(GRANT, (model.grant_lands, GRANT, TTL))
    yield granted(GRANT_OF_BOB, (model.grant_lands, GRANT_OF_BOB, TTL))
    for candidate, read in ((ALICE, READ), (BOB, READ_OF_BOB)):
        yield f"{candidate}'s key is created", [(model.send_claim, candidate), (claim, candidate)]
        yield f"{candidate} is elected", [(model.elected, candidate, read)]
        yield f"the store ends {candidate}'s lease", [(model.lease_ends, candidate)]
    everybody = page((ALICE, BOB))
    yield f"{READ} is asked", [(model.send_read, READ, newest_key(ALICE))]
    first = [(model.page_is_read, READ, everybody), (model.place_is_read, READ)]
    yield f"{READ} is answered: she is the first", first
    asked = (model.send_read, READ_OF_BOB, newest_key(BOB))
    first = [(model.page_is_read, READ_OF_BOB, everybody), (model.place_is_read, READ_OF_BOB)]
    yield f"{READ_OF_BOB} is answered: he is the first", [asked, *first]


def moves_of_a_handover():
    """Alice gives her term or her place up, and Bob may be elected by the event as well."""
    yield from usual_moves()
    own = newest_key(ALICE)
    yield "alice's work has yielded", [(model.yielded, ALICE)]
    yield "alice's removal is sent", [(model.send_removal, ALICE, own)]
    yield "alice's removal lands", [(model.removal_lands, ALICE, own)]
    asked = (model.send_read, READ_OF_BOB, newest_key(BOB))
    found = (model.key_in_front_is_read, READ_OF_BOB, ALICE)
    others = (model.page_is_read, READ_OF_BOB, page((BOB,)))
    answered = [asked, others, found, (model.place_is_read, READ_OF_BOB)]
    yield f"{READ_OF_BOB} is answered: he is the next", answered


def moves_with_a_late_grant():
    """One grant of Alice's lands late, or is acknowledged late, and she renews her lease."""
    yield from usual_moves()
    yield granted(RENEWAL, (model.renewal_lands, RENEWAL))
    yield f"{LATE} is sent", [(model.send_request, LATE)]
    yield f"{LATE} lands", [(model.grant_lands, LATE, TTL)]
    yield f"{LATE} is acknowledged", [(model.take_acknowledgement, LATE, until_of(LATE))]


def has_two_leaders(state):
    """Both candidates regard themselves as leader, by the clock."""
    return all(
        all_of(state.leads(it), model.is_valid(state, it)) for it in UNIVERSE[model.CANDIDATE]
    )


def has_two_leaders_as_a_lease_lives_again(state):
    """The same, where Alice's lease had ended, a late grant made it again, and a renewal of it counted."""
    return all_of(
        *(has_two_leaders(state), state.landed(GRANT), state.landed(LATE), state.landed(RENEWAL)),
        *(state.gone(ALICE, state.epoch(ALICE)), state.sent_at(LATE) < state.sent_at(RENEWAL)),
        state.until(ALICE) == state.mark(RENEWAL) + TTL,
    )


def has_two_at_work(state):
    """The work of both candidates may run, by the clock."""
    ahead = lambda it: state.clock(it) < state.works_until(it)
    return all(all_of(state.works(it), ahead(it)) for it in UNIVERSE[model.CANDIDATE])


def has_handed_over(state):
    """Bob leads after Alice, whose lease lives on: no time has passed."""
    alice = all_of(state.led(ALICE, state.epoch(ALICE)), state.alive(ALICE))
    return all_of(alice, model.regards_itself_as_leader(state, BOB), state.time == 0)


def has_handed_over_by_the_event(state):
    """The same, and no read has shown Bob that he is the first."""
    return all_of(has_handed_over(state), state.shown(READ_OF_BOB, ALICE))


class Hunt(NamedTuple):
    """What a search is expected to find, and what not."""

    moves: Callable
    left_out: str | None
    expected: tuple
    excluded: tuple
    contests: tuple = ("queue", "race")


OVERLAPS = (has_two_leaders, has_two_at_work)
HUNTS = (
    Hunt(
        *(moves_of_a_handover, None),
        *((has_handed_over, has_handed_over_by_the_event), OVERLAPS, ("queue",)),
    ),
    Hunt(moves_of_a_handover, None, (has_handed_over,), OVERLAPS, ("race",)),
    Hunt(moves_with_a_late_grant, None, (), OVERLAPS),
    Hunt(
        *(moves_with_a_late_grant, "freshness"),
        *((has_two_leaders, has_two_leaders_as_a_lease_lives_again), ()),
    ),
    Hunt(moves_with_a_late_grant, "clock", (has_two_leaders,), (), ("queue",)),
    Hunt(moves_with_a_late_grant, "sending", (has_two_leaders,), (), ("queue",)),
    Hunt(moves_of_a_handover, "yielding", (has_two_at_work,), (), ("queue",)),
    Hunt(moves_of_a_handover, "epoch", (has_two_leaders,), (), ("queue",)),
)


def report():
    """Runs all searches, prints what they find, and returns whether it is what they should find."""
    holds = True
    for hunt in HUNTS:
        for contest in hunt.contests:
            began = time.monotonic()
            search = Search(hunt.moves, contest == "race", hunt.left_out)
            found, states = search.find((*hunt.expected, *hunt.excluded))
            took = time.monotonic() - began
            rules = f"without the rule `{hunt.left_out}`" if hunt.left_out else "with all rules"
            moves = words(hunt.moves)
            print(f"{contest}, {moves}, {rules}: {states} states in {took:.1f} s")
            for goal in hunt.expected:
                names = found.get(goal, ["NO HISTORY, and there should be one"])
                print(f"  {words(goal)}, after {len(names)} moves: {'; '.join(names)}")
            for goal in hunt.excluded:
                names = found.get(goal)
                print(f"  {words(goal)}: {'; '.join(names) if names else 'in no state'}")
            holds = holds and set(found) == set(hunt.expected)
    return holds


def words(function):
    """The name of a function, as words."""
    return function.__name__.replace("_", " ")
