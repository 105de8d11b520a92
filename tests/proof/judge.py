"""Judges recordings by the guards of the model, line by line: `just proof --judge DIR`.

A recording is of one process: what its electors were told and what they did, at marks of its clock. The
judge follows its lines over plain numbers, and the model's guards have to allow each thing that an elector
did. A deadline has to follow from an acknowledgement, a term from a fresh read or from the event, a removal
and a revocation from work that has stopped, and a write from its term. Recordings of one machine have one
clock, so they are judged together as well: no two terms of an election may overlap, and epochs rise.
"""

import argparse
import itertools
import json
import math
import pathlib
import sys
from collections import defaultdict, deque
from typing import NamedTuple

import model

WISHES = b"incumbent-wishes/"

# How many keys in front of its own an elector follows. Where there are more, it does not rest on them.
MOST_IN_FRONT = 2

# So many answers to reads of a place are remembered: an old one may come late.
ANSWERS = 4


class Candidate(NamedTuple):
    """A part in an election, on one lease."""

    election: str
    lease: int
    elector: str


class Search(NamedTuple):
    """The search for the place of a candidate's key, by its create revision."""

    reader: Candidate
    own: int


class Recorded(model.State):
    """A state over tables. What is not in a table is as at the beginning."""

    DEFAULTS = {model.BOOL: False, model.INTEGER: 0, model.REAL: 0, model.CANDIDATE: None}

    def __init__(self):
        super().__init__({}, self.for_each_at_work)
        self.tables = {
            name: defaultdict(lambda default=self.DEFAULTS[gives]: default)
            for name, (_, gives) in model.FIELDS.items()
        }
        self.tables["lapsed"] = defaultdict(lambda: True)
        # Candidates at work, by election. A sentence is about one election where that is named.
        self.at_work, self.named = defaultdict(set), None
        self.requests, self.now = {}, 0
        # Whatever is named is of the past.
        self.revision = math.inf

    def __getattr__(self, name):
        tables = self.__dict__.get("tables", {})
        if name not in tables:
            raise AttributeError(name)
        return lambda *place: tables[name][place]

    # One clock shows all of them the same.
    def clock(self, _lease):
        return self.now

    def lease_of(self, candidate):
        return candidate.lease

    def election_of(self, candidate):
        return candidate.election

    def reader(self, search):
        return search.reader

    def sender(self, request):
        return self.requests[request]

    def put(self, name, *place_and_value):
        *place, value = place_and_value
        self.tables[name][tuple(place)] = value
        if name == "works":
            candidates = self.at_work[place[0].election]
            (candidates.add if value else candidates.discard)(place[0])

    def all_at_work(self):
        """The candidates at work, of the named election or of all."""
        elections = self.at_work if self.named is None else [self.named]
        return [it for election in elections for it in self.at_work[election]]

    def for_each_at_work(self, sorts, body):
        """Whether a body holds for all candidates at work: it says nothing of the others."""
        assert all(sort == model.CANDIDATE for sort in sorts), sorts
        return all(body(*these) for these in itertools.product(self.all_at_work(), repeat=len(sorts)))


class Broken(Exception):
    """A guard does not hold."""


class Elector:
    """What is known of one elector."""

    def __init__(self, name, state, config):
        self.name, self.state = name, state
        self.margin = int(config["safety-margin"])
        # All leases that it has asked for, the last one, and those whose deadline is ahead.
        self.calls, self.leases, self.lease, self.valid = {}, set(), None, set()
        # The name of each election id, and the contest of each name.
        self.elections, self.contests = {}, {}
        # By search: of its last answers, the keys in front that are not gone, and the revision of the first
        # page. By key: these searches.
        self.ahead, self.fronts = defaultdict(lambda: deque(maxlen=ANSWERS)), defaultdict(set)
        # When each key was gone at the latest, as a watch or a read has told.
        self.deletions = {}
        # By a key of this elector: which keys in front its pages have shown.
        self.pages = {}
        # By read: the lease and its stretch in which it was asked.
        self.stretches = {}

    # What it is told.

    def look_at_the_clock(self, now):
        """The first thing in a step: deadlines that have passed."""
        state = self.state
        state.now = now
        for lease in [it for it in self.valid if not model.is_valid(state, it)]:
            self.valid.remove(lease)
            state.put("lapsed", lease, True)
            state.put("stretch", lease, state.stretch(lease) + 1)
            for it in [it for it in state.all_at_work() if it.lease == lease]:
                state.put("leads", it, False)

    def hear(self, event):
        tag, value = event["tag"], event.get("val")
        if tag in ("campaign", "observe", "inspect"):
            self.elections.setdefault(value["election"], value["name"])
            self.contests.setdefault(value["name"], set()).add(value["contest"])
        elif tag == "reply":
            call = self.calls.pop(value["id"], None)
            if call and value["outcome"]["tag"] == "ok":
                self.answered(value["id"], call, value["outcome"]["val"])
        elif tag == "watched":
            change = value["change"]
            if change["tag"] == "deleted":
                self.deleted(bytes.fromhex(change["val"]["key"]), int(change["val"]["at"]))
        elif tag == "yielded":
            it = self.at_work(value)
            if it:
                self.state.put("works", it, False)

    def answered(self, request, call, answer):
        tag, asked, value = call["tag"], call["val"], answer.get("val")
        if (tag, answer["tag"]) in (("grant", "granted"), ("keep-alive", "renewed")):
            self.acknowledged((self.name, request), int(value))
        elif tag == "claim" and answer["tag"] in ("claimed", "taken"):
            it = self.candidate_of(bytes.fromhex(asked["key"]), int(asked["lease"]))
            if it and int(value["entry"]["lease"]) == it.lease:
                self.state.put("made", it, int(value["entry"]["created"]), True)
        elif tag == "read" and answer["tag"] == "snapshot":
            self.places(self.stretches.pop(request), asked, value)

    def acknowledged(self, request, granted):
        """An answer to a grant or a renewal bounds the deadline."""
        state, lease = self.state, self.state.sender(request)
        until = state.mark(request) + granted - max(self.margin, granted // 100)
        state.put("landed", request, True)
        state.put("granted", request, granted)
        if not model.may_extend(state, request, until):
            raise Broken("an acknowledgement extends the lease beyond what was granted")
        if state.until(lease) < until:
            state.put("until", lease, until)
            self.valid.add(lease)
            if state.lapsed(lease):
                state.put("stretch", lease, state.stretch(lease) + 1)
                state.put("lapsed", lease, False)

    def places(self, stretches, selections, snapshot):
        """What a read shows of the places of this elector's keys."""
        at = int(snapshot["at"])
        pairs = list(zip(selections, snapshot["found"], strict=False))
        points = [
            entry
            for selection, found in pairs
            if not selection["prefix"]
            for entry in found
        ]
        for selection, found in pairs:
            key = bytes.fromhex(selection["key"]).decode(errors="replace")
            if not selection["prefix"]:
                # An older key is gone where there is none, or since before a newer one was made.
                since = int(found[0]["created"]) if found else at
                self.deleted(bytes.fromhex(selection["key"]), since)
            if not selection["prefix"] and "race" in self.contests.get(key, ()):
                for entry in found:
                    self.shown(key, entry, [], at, at, stretches)
            name = key.removesuffix("/")
            if not selection["prefix"] or name == key or "queue" not in self.contests.get(name, ()):
                continue
            complete = len(found) < selection["limit"]
            if selection["created-before"] is not None:
                created = int(selection["created-before"]) - 1
                for own in [it for it in found if int(it["created"]) == created and self.is_ours(it)]:
                    front = [it for it in found if int(it["created"]) < created]
                    # Other data hide how many there are.
                    if complete and all(counts(name, it) for it in front):
                        self.shown(name, own, front, at, at, stretches)
            elif selection["order"] == "by-key":
                for own in [it for it in points if self.is_ours(it)]:
                    place = own["key"], own["created"]
                    if selection["from"] == selection["key"]:
                        self.pages[place] = {}, at
                    seen, first = self.pages.get(place, ({}, at))
                    older = [it for it in found if int(it["created"]) < int(own["created"])]
                    seen.update({it["key"]: it for it in older if counts(name, it)})
                    if complete and len(seen) <= MOST_IN_FRONT:
                        self.shown(name, own, list(seen.values()), at, first, stretches)

    def shown(self, name, own, front, at, first, stretches):
        """A read has shown a key of this elector, and all that is in front of it."""
        reader = self.candidate_of(bytes.fromhex(own["key"]), int(own["lease"]))
        if not reader or reader.election != name:
            return
        search = Search(reader, int(own["created"]))
        state = self.state
        # An older answer that comes late says less.
        if not state.asked(search) or state.asked_in(search) <= stretches.get(reader.lease, -1):
            state.put("asked", search, True)
            state.put("asked_in", search, stretches.get(reader.lease, -1))
        state.put("own", search, search.own)
        state.put("answered", search, True)
        keys = {bytes.fromhex(it["key"]) for it in front}
        # The news of a deletion may come before the answer to a read that was sent before it.
        ahead = {key for key in keys if self.deletions.get(key, 0) <= first}
        self.ahead[search].append((ahead, first))
        for key in ahead:
            self.fronts[key].add(search)

    def deleted(self, key, at):
        """A key was gone at this revision, for some searches one in front."""
        self.deletions[key] = max(at, self.deletions.get(key, 0))
        searches = self.fronts.pop(key, set())
        for search in searches:
            for ahead, first in self.ahead[search]:
                if at > first:
                    ahead.discard(key)
        still = {it for it in searches if any(key in ahead for ahead, _ in self.ahead[it])}
        if still:
            self.fronts[key] = still

    # What it does.

    def obey(self, command, now):
        tag, value = command["tag"], command.get("val")
        if tag == "call":
            operation = value["operation"]
            self.calls[value["id"]] = operation
            self.called(value["id"], operation, now)
        elif tag == "notify":
            self.told(value["tag"], value.get("val"), now)

    def called(self, request, operation, now):
        state, tag, value = self.state, operation["tag"], operation["val"]
        if tag in ("grant", "keep-alive"):
            lease = int(value["lease"] if tag == "grant" else value)
            self.leases.add(lease)
            self.lease = lease
            state.requests[self.name, request] = lease
            state.put("sent", (self.name, request), True)
            state.put("mark", (self.name, request), now)
        elif tag == "revoke":
            lease = int(value)
            give_back(state, lease)
        elif tag == "read":
            self.stretches[request] = {self.lease: state.stretch(self.lease)}
        elif tag == "guarded":
            self.guarded(value)

    def guarded(self, value):
        guard, state = value["guard"], self.state
        key, epoch = bytes.fromhex(guard["key"]), int(guard["epoch"])
        if key.startswith(WISHES):
            return
        lease = guard["lease"]
        of = [it for it in self.candidates_of(key) if lease is None or it.lease == int(lease)]
        for mutation in value["mutations"]:
            if mutation["tag"] == "delete" and bytes.fromhex(mutation["val"]) == key:
                if not self.may_be_own(key):
                    raise Broken(f"`{key.decode(errors='replace')}` is removed, which is another candidate's")
                if not all(model.may_remove(state, it, epoch) for it in of):
                    raise Broken(f"the key of epoch {epoch} goes, and the work of its term may go on")
                for it in of:
                    state.put("removed", it, epoch, True)
            elif mutation["tag"] != "proclaim" and not any(
                state.epoch(it) == epoch and model.regards_itself_as_leader(state, it) for it in of
            ):
                raise Broken(f"something is written in epoch {epoch}, which does not lead")

    def told(self, tag, value, now):
        state = self.state
        if tag == "elected":
            self.elected(value, now)
        elif tag == "extended":
            lease, until = int(value["lease"]), int(value["valid-until"])
            if not now < until <= state.until(lease):
                raise Broken("a term is extended beyond what was acknowledged")
            # Only now its work is told that it may go on for so long.
            for it in [it for it in state.all_at_work() if it.lease == lease and state.leads(it)]:
                state.put("works_until", it, until)
        elif tag == "demoted":
            it = self.at_work(value["term"])
            if it:
                state.put("leads", it, False)

    def elected(self, leadership, now):
        state, epoch = self.state, int(leadership["term"]["epoch"])
        it = self.candidate_of(bytes.fromhex(leadership["key"]), int(leadership["lease"]))
        if it is None:
            raise Broken(f"epoch {epoch} is of a key that no candidate of this elector has")
        search = Search(it, epoch)
        is_first = any(not ahead for ahead, _ in self.ahead[search])
        if not is_first or not model.may_be_elected(state, it, search):
            raise Broken(f"nothing shows that `{it.election}` is led in epoch {epoch}")
        until = int(leadership["valid-until"])
        if not now < until <= state.until(it.lease):
            raise Broken(f"epoch {epoch} is told to last beyond what was acknowledged")
        if not model.law_6_epochs_rise(state, it, search):
            raise Broken(f"epoch {epoch} of `{it.election}` comes after {state.newest(it.election)}")
        state.put("newest", it.election, epoch)
        for field, now_is in (("leads", True), ("works", True), ("epoch", epoch)):
            state.put(field, it, now_is)
        state.put("works_until", it, until)
        state.put("led", it, epoch, True)
        state.named = it.election
        is_alone, state.named = model.terms_do_not_overlap(state), None
        if not is_alone:
            raise Broken(f"`{it.election}` is led in epoch {epoch}, and the work of another term may go on")

    # Names.

    def candidates_of(self, key):
        """The candidates of this elector that a key may be of, one for each lease."""
        whole = key.decode(errors="replace")
        names = [(whole, "race"), (whole.rpartition("/")[0], "queue")]
        names = [name for name, contest in names if contest in self.contests.get(name, ())]
        return [Candidate(name, lease, self.name) for name in names for lease in self.leases]

    def candidate_of(self, key, lease):
        found = [it for it in self.candidates_of(key) if it.lease == lease]
        return found[0] if found else None

    def may_be_own(self, key):
        """Whether a key may be of this elector: in a queue, it ends in one of its leases."""
        name = key.decode(errors="replace")
        entries = ({"key": key.hex(), "lease": str(lease)} for lease in self.leases)
        return "race" in self.contests.get(name, ()) or any(
            counts(name.rpartition("/")[0], entry) for entry in entries
        )

    def is_ours(self, entry):
        return self.candidate_of(bytes.fromhex(entry["key"]), int(entry["lease"])) is not None

    def at_work(self, term):
        candidates = self.state.at_work[self.elections.get(term["election"])]
        return next((it for it in candidates if self.is_of(it, term)), None)

    def is_of(self, it, term):
        name = self.elections.get(term["election"])
        return it.elector == self.name and it.election == name and self.state.epoch(it) == int(term["epoch"])


def give_back(state, lease):
    """An elector, or the host of one that broke, has the store revoke a lease."""
    if not model.may_give_back(state, lease):
        raise Broken(f"the lease {lease:x} is given back, and work on it may go on")
    state.put("given_back", lease, True)


def counts(name, entry):
    """Whether a key is a candidate's in the queue of this name: it ends in its own lease's id."""
    lease = int(entry["lease"])
    sign, of = "-" if lease < 0 else "", abs(lease)
    ids = {f"{sign}{of:x}", f"{sign}{of:016x}", f"{sign}{of}"}
    return lease != 0 and bytes.fromhex(entry["key"]) in {f"{name}/{it}".encode() for it in ids}


class Judge:
    """Follows the lines of recordings, of one elector or of several on one clock."""

    def __init__(self):
        self.state, self.electors, self.terms = Recorded(), {}, 0
        # The number of the next file of each recording.
        self.segments = {}

    def take(self, source, line):
        """Takes a line. Raises `Broken` at what the model does not allow."""
        name = f"{source}#{line.get('elector', 0)}"
        if "segment" in line:
            # The files before this one may be gone.
            if self.segments.get(source, line["segment"]) != line["segment"]:
                self.interrupt(source)
            self.segments[source] = line["segment"] + 1
            return
        if "open" in line:
            if "error" not in line:
                number = sum(it.startswith(name) for it in self.electors)
                self.electors[name] = Elector(f"{name}@{number}", self.state, line["open"])
            return
        if "host" in line:
            self.host_did(source, name, int(line["now"]), line["host"]["tag"], line["host"].get("val"))
            return
        elector = self.electors.get(name)
        if elector is None or "step" not in line:
            return
        now = int(line["now"])
        elector.look_at_the_clock(now)
        for event in line["events"]:
            elector.hear(event)
        for command in (line["step"] or {"commands": []})["commands"]:
            elector.obey(command, now)
            self.terms += command["tag"] == "notify" and command["val"]["tag"] == "elected"

    def host_did(self, source, name, now, tag, val):
        """Takes what a host did beside the elector."""
        state = self.state
        if tag == "gap":
            # What follows rests on what is missing.
            self.electors.pop(name, None)
            self.forget_work(source)
        elif tag == "yielded":
            of = [it for it in state.at_work[val["name"]] if state.epoch(it) == int(val["epoch"])]
            for it in of:
                state.put("works", it, False)
        elif tag == "gave-back":
            state.now = now
            give_back(state, int(val))

    def interrupt(self, source):
        """Lines of all electors of a recording are missing here."""
        self.electors = {name: it for name, it in self.electors.items() if not name.startswith(f"{source}#")}
        self.forget_work(source)

    def forget_work(self, source):
        """Work may have stopped where lines are missing."""
        for it in [it for it in self.state.all_at_work() if it.elector.startswith(f"{source}#")]:
            self.state.put("works", it, False)


# What comes of reading what is no recording.
ODD = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class Line(NamedTuple):
    """A line of a recording."""

    now: int
    source: str
    path: pathlib.Path
    number: int
    content: dict


def head_of(path):
    """Which recording a file belongs to, and its place there; none for a story, which is one by itself."""
    with path.open("rb") as file:
        first = file.readline()
    try:
        header = json.loads(first)
        is_recording = header["package"].startswith("incumbent:election@") and header["format"] == 1
        if is_recording:
            return "" + (header.get("recording") or ""), int(header.get("segment", 0))
    except ODD:
        pass
    raise ValueError(f"{path} is no recording: its first line has no format and package of Incumbent")


def lines_of(path):
    """The lines of a recording's file, after the first."""
    recording, segment = head_of(path)
    source = recording or path.stem
    lines = path.read_bytes().split(b"\n")
    # If anything, a line that its host was killed in.
    lines.pop()
    for number, text in enumerate(lines[1:], 2):
        try:
            content = json.loads(text)
            now = int(content["now"])
        except ODD as error:
            raise not_a_line(path, number, error) from error
        # In a story, what follows an elector that opens has nothing to do with what was before.
        source = f"{path.stem}:{number}" if not recording and "open" in content else source
        if recording and number == 2:
            yield Line(now, source, path, 1, {"segment": segment})
        yield Line(now, source, path, number, content)


def not_a_line(path, number, error):
    """What to raise for a line that no recording has."""
    return ValueError(f"{path}, line {number}: not a line of a recording ({type(error).__name__}: {error})")


def judge(lines):
    """What is wrong with these lines, in a sentence, or nothing; and how many terms they have."""
    judge = Judge()
    for line in lines:
        try:
            judge.take(line.source, line.content)
        except Broken as broken:
            return f"{line.path}, line {line.number}: {broken}", judge.terms
        except ODD as error:
            raise not_a_line(line.path, line.number, error) from error
    return None, judge.terms


def main(paths, together=True):
    """Judges each recording of these files and folders, and those of a folder that has several together."""
    files = [it for path in paths for it in (path.rglob("*.jsonl") if path.is_dir() else [path])]
    if not files:
        raise ValueError("there is no recording (*.jsonl) in " + ", ".join(map(str, paths)))
    of = lambda path: (path.parent, *head_of(path), path.name)
    faults, recordings, terms = 0, 0, 0
    for folder, files in itertools.groupby(sorted(files, key=of), key=lambda path: path.parent):
        several = []
        # A file after the other, of those that are judged by themselves.
        lines = itertools.chain.from_iterable(map(lines_of, files))
        for source, of_one in itertools.groupby(lines, key=lambda line: line.source):
            if together:
                of_one = list(of_one)
                several += [] if source.startswith(f"{of_one[0].path.stem}:") else [of_one]
            fault, held = judge(of_one)
            faults, recordings, terms = faults + tell(fault), recordings + 1, terms + held
        if len(several) > 1:
            by_time = sorted(itertools.chain.from_iterable(several), key=lambda line: line.now)
            fault, _ = judge(by_time)
            faults += tell(fault and f"together: {fault}")
    print(f"{recordings} recordings, {terms} terms: {faults or 'no'} faults")
    return not faults


def tell(fault):
    """Says at once what is wrong, and how many faults that is."""
    if fault:
        print(fault, flush=True)
    return bool(fault)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--each", action="store_true", help="judge no recordings together")
    parser.add_argument("paths", nargs="+", type=pathlib.Path, metavar="PATH")
    arguments = parser.parse_args()
    try:
        good = main(arguments.paths, together=not arguments.each)
    except (OSError, ValueError) as error:
        sys.exit(f"judge: {error}")
    sys.exit(0 if good else 1)
