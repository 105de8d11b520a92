"""Each change of a transcript that breaks a rule is refused, by the rule that it breaks.

`test_judge.py --write DIR` also writes each one to DIR/NAME.jsonl, and what is said of it to DIR/NAME.txt:
the tests of `incumbent replay` want the same of that.
"""

import copy
import json
import pathlib
import sys
import unittest

import judge

STEPS = pathlib.Path(__file__).parent.parent / "transcripts" / "steps"


# Where the changed stories are written.
WRITTEN = None


def lines_of(name):
    """The lines of a story up to its second elector."""
    lines = list(judge.lines_of(STEPS / f"{name}.jsonl"))
    return copy.deepcopy([line for line in lines if line.source == lines[0].source])


def commands(lines, *tags):
    """The commands of these kinds, with the line that each is in."""
    for line in lines:
        for command in (line.content.get("step") or {"commands": []})["commands"]:
            inner = command.get("val")
            inner = inner.get("operation", inner) if isinstance(inner, dict) else {}
            if (command["tag"], inner.get("tag"))[: len(tags)] == tags:
                yield line, command


def without_events(lines, is_left_out):
    """The same story, in which some events were not told."""
    for line in lines:
        if "events" in line.content:
            line.content["events"] = [it for it in line.content["events"] if not is_left_out(it)]
    return lines


def is_answer(kind):
    """Whether an event is an answer of this kind."""
    return lambda it: it["tag"] == "reply" and it["val"]["outcome"].get("val", {}).get("tag") == kind


class Refused(unittest.TestCase):
    """What the model does not allow."""

    def assert_refused(self, lines, why):
        fault, _ = judge.judge(lines)
        self.assertIsNotNone(fault, "nothing is wrong with it")
        self.assertIn(why, fault)
        if WRITTEN and len({line.source for line in lines}) == 1:
            name = f"{self.id().rpartition('.')[2]}_{len(list(WRITTEN.glob('*.txt')))}"
            header = lines[0].path.read_text().splitlines()[0]
            texts = [header, *(json.dumps(line.content) for line in lines)]
            (WRITTEN / f"{name}.jsonl").write_text("\n".join(texts) + "\n")
            number = next(it for it, line in enumerate(lines, 2) if f", line {line.number}:" in fault)
            (WRITTEN / f"{name}.txt").write_text(f"line {number}: {fault.partition(': ')[2]}")

    def test_the_stories_themselves_are_good(self):
        for path in sorted(STEPS.glob("*.jsonl")):
            self.assertIsNone(judge.judge(lines_of(path.stem))[0])

    def test_a_deadline_beyond_what_was_acknowledged(self):
        for tag in ("elected", "extended"):
            lines = lines_of("an_old_renewal_proves_nothing_new")
            [*found] = commands(lines, "notify", tag)
            for _, command in found:
                value = command["val"]["val"]
                value["valid-until"] = str(int(value["valid-until"]) + 1)
            self.assert_refused(lines, "beyond what was acknowledged")

    def test_a_term_that_no_read_shows(self):
        lines = without_events(lines_of("first_in_line"), is_answer("snapshot"))
        self.assert_refused(lines, "nothing shows")

    def test_a_term_by_an_event_that_did_not_come(self):
        is_news = lambda it: it["tag"] == "watched" and it["val"]["change"]["tag"] == "deleted"
        self.assert_refused(without_events(lines_of("next_in_line"), is_news), "nothing shows")

    def test_a_term_by_an_event_behind_two(self):
        lines = lines_of("next_after_two")
        [(line, command)] = commands(lines, "notify", "elected")
        # At the time at which the first of the two in front is still there.
        early = next(it for it in lines if it.now == 4_000_000)
        value = command["val"]["val"]
        value["valid-until"] = str(min(int(value["valid-until"]), 59_400_000_000))
        news = [it for it in line.content["events"] if it["tag"] == "watched"]
        early.content["events"] += copy.deepcopy(news)
        early.content["step"]["commands"].append(command)
        self.assert_refused(lines, "nothing shows")

    def test_the_hole_that_a_proof_attempt_found(self):
        """A read of another stretch, on a lease that lives again without its keys."""
        lines = lines_of("a_lease_ends_and_lives_again")
        late = next(it for it in lines if it.now == 15_700_000_000)
        late.content["step"]["commands"] = [
            {
                "tag": "notify",
                "val": {
                    "tag": "elected",
                    "val": {
                        "term": {"election": 1, "epoch": "9"},
                        "key": b"jobs/699\x00".hex(),
                        "lease": "0",
                        "valid-until": "24910000000",
                    },
                },
            }
        ]
        claim = next(commands(lines, "call", "claim"))[1]["val"]["operation"]["val"]
        late.content["step"]["commands"][0]["val"]["val"].update(key=claim["key"], lease=claim["lease"])
        self.assert_refused(lines, "nothing shows")

    def test_an_epoch_that_led_before(self):
        lines = lines_of("first_in_line")
        [(line, command)] = commands(lines, "notify", "elected")
        line.content["step"]["commands"].append(copy.deepcopy(command))
        self.assert_refused(lines, "nothing shows")

    def test_a_key_that_goes_while_work_may_go_on(self):
        lines = lines_of("stops_and_resigns_in_milliseconds")
        lines = without_events(lines, lambda it: it["tag"] == "yielded")
        self.assert_refused(lines, "work of its term may go on")

    def test_a_key_of_another_candidate_that_is_removed(self):
        lines = lines_of("stops_and_resigns_in_milliseconds")
        for _, command in commands(lines, "call", "guarded"):
            value = command["val"]["operation"]["val"]
            value["guard"]["key"] = b"jobs/77".hex()
            value["mutations"] = [{"tag": "delete", "val": b"jobs/77".hex()}]
        self.assert_refused(lines, "another candidate's")

    def test_a_lease_that_goes_while_work_may_go_on(self):
        lines = lines_of("first_in_line")
        [(line, command)] = commands(lines, "notify", "elected")
        revoke = {"tag": "revoke", "val": command["val"]["val"]["lease"]}
        call = {"id": "99", "give-up": "99000000000", "operation": revoke}
        line.content["step"]["commands"].append({"tag": "call", "val": call})
        self.assert_refused(lines, "given back")

    def test_a_lease_that_its_host_gives_back_while_work_may_go_on(self):
        """Beside an elector that broke. With the work over, it may go."""
        lines = lines_of("first_in_line")
        [(line, command)] = commands(lines, "notify", "elected")
        lines = lines[: lines.index(line) + 1]
        value = command["val"]["val"]
        stopped = {"tag": "yielded", "val": {"name": "jobs", "epoch": value["term"]["epoch"]}}
        goes = {"tag": "gave-back", "val": value["lease"]}

        def after(*actions):
            numbered = enumerate(actions, line.number + 1)
            content = lambda it: {"now": str(line.now + 1), "host": it}
            return lines + [line._replace(number=number, content=content(it)) for number, it in numbered]

        self.assertIsNone(judge.judge(after({"tag": "broke", "val": "a trap"}, stopped, goes))[0])
        self.assert_refused(after({"tag": "broke", "val": "a trap"}, goes), "given back")

    def test_work_goes_on_for_as_long_as_it_was_told(self):
        """The elector breaks with an answer that would have extended its term."""
        lines = lines_of("an_old_renewal_proves_nothing_new")
        [(line, _), *_] = commands(lines, "notify", "extended")
        [(_, elected), *_] = commands(lines, "notify", "elected")
        lines = lines[: lines.index(line) + 1]
        line.content["step"] = None
        value = elected["val"]["val"]
        until = int(value["valid-until"])

        def gives_back(now):
            content = {"now": str(now), "host": {"tag": "gave-back", "val": value["lease"]}}
            return [*lines, line._replace(number=line.number + 1, now=now, content=content)]

        self.assertIsNone(judge.judge(gives_back(until))[0])
        self.assert_refused(gives_back(until - 1), "given back")

    def test_where_lines_are_missing_work_may_have_stopped(self):
        lines = lines_of("first_in_line")
        [(line, command)] = commands(lines, "notify", "elected")
        lines = lines[: lines.index(line) + 1]
        goes = {"host": {"tag": "gave-back", "val": command["val"]["val"]["lease"]}}
        for missing in [{"host": {"tag": "gap", "val": "1"}}], [{"segment": 0}, {"segment": 2}]:
            contents = [{"now": str(line.now + 1), **it} for it in [*missing, goes]]
            after = [line._replace(content=it) for it in contents]
            self.assertIsNone(judge.judge(lines + after)[0])

    def test_a_write_in_another_epoch(self):
        lines = lines_of("late_writes_conflict")
        for _, command in commands(lines, "call", "guarded"):
            value = command["val"]["operation"]["val"]
            value["guard"]["epoch"] = str(int(value["guard"]["epoch"]) + 1)
        self.assert_refused(lines, "which does not lead")

    def test_a_line_that_no_recording_has(self):
        """Nothing but a sentence that names it comes of it."""
        lines = lines_of("first_in_line")
        odd = [
            {"host": {}},
            {"host": {"tag": "gave-back", "val": "all"}},
            {"events": [{"tag": "reply"}], "step": None},
            {"events": [], "step": {"commands": [{"tag": "notify", "val": {"tag": "elected"}}]}},
            {"segment": "first"},
        ]
        for content in odd:
            line = lines[-1]._replace(number=99, content={"now": "9000000000", **content})
            with self.assertRaisesRegex(ValueError, "first_in_line.jsonl, line 99: not a line of a recording"):
                judge.judge([*lines, line])

    def test_two_at_once(self):
        """Two electors on one clock, and the second one's epoch is lower, or its term overlaps."""
        first = lines_of("first_in_line")
        other = [line._replace(source="other", now=line.now + 1) for line in copy.deepcopy(first)]
        for line in other:
            text = json.dumps(line.content).replace('"epoch": "', '"epoch": "1')
            text = text.replace('"created": "', '"created": "1').replace('"created-before": "', '"created-before": "1')
            line.content.clear()
            line.content.update(json.loads(text))
        together = sorted([*first, *other], key=lambda line: line.now)
        self.assert_refused(together, "work of another term may go on")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        WRITTEN = pathlib.Path(sys.argv.pop(2))
        sys.argv.pop(1)
    unittest.main()
