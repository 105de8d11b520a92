"""Proves the laws of the model: every obligation is given to z3.

prove.py                  all obligations
prove.py --break RULE     the same with one rule left out
prove.py --breaks         whether each rule that is left out leaves obligations unproved
prove.py --history        whether a search from the initial state finds what it should
prove.py --smt2 DIRECTORY writes the obligations as files; --cvc5 gives them to a second solver
"""

import argparse
import inspect
import pathlib
import sys
import time
from typing import NamedTuple

import z3

import history
import lemma
import model
from logic import is_known, negate

SORTS = {
    **{
        name: z3.DeclareSort(name)
        for name in (model.LEASE, model.ELECTION, model.CANDIDATE, model.REQUEST, model.READ)
    },
    model.BOOL: z3.BoolSort(),
    model.INTEGER: z3.IntSort(),
    model.REAL: z3.RealSort(),
}


class Obligation(NamedTuple):
    """A sentence that has to follow from others."""

    name: str
    assumptions: list
    conclusion: object
    logic: str = "ALL"


class Quantifiers:
    """Says in the solver's terms that a body holds for all values.

    Variables are named by their depth. So the same sentence is the same term whenever it is made, and a
    sentence inside another one has variables of its own.
    """

    depth = 0

    @classmethod
    def for_each(cls, sorts, body):
        cls.depth += 1
        names = [f"{sort.lower()}_{cls.depth}_{at}" for at, sort in enumerate(sorts)]
        values = [z3.Const(name, SORTS[sort]) for name, sort in zip(names, sorts, strict=True)]
        sentence = body(*values)
        cls.depth -= 1
        return sentence if is_known(sentence) else z3.ForAll(values, sentence)


def declare(name, takes, gives):
    """A function or a constant of the solver."""
    if not takes:
        return z3.Const(name, SORTS[gives])
    return z3.Function(name, *(SORTS[sort] for sort in takes), SORTS[gives])


def any_state(rules):
    """A state of which nothing is known."""
    fields = {**model.FIELDS, **model.CONSTANTS}
    terms = {name: declare(name, *signature) for name, signature in fields.items()}
    return model.State(terms, Quantifiers.for_each, rules)


def arguments_of(action):
    """Any arguments of an action."""
    signatures = {
        model.CLOCKS: ((model.LEASE,), model.REAL),
        model.PAGE: ((model.CANDIDATE,), model.BOOL),
    }
    return [
        declare(f"any_{it.name}", *signatures.get(it.annotation, ((), it.annotation)))
        for it in list(inspect.signature(action).parameters.values())[1:]
    ]


def obligations_of_model(title, rules, actions, invariant, laws, laws_of_actions, steps):
    """What has to be proved for the invariant, and the laws, to hold for ever."""
    state = any_state(rules)
    known = [conjunct(state) for conjunct in invariant]
    for conjunct in invariant:
        name = f"{title}: initial: {conjunct.__name__}"
        yield Obligation(name, [model.initial(state)], conjunct(state))
    for action in actions:
        guard, changes = action(state, *arguments_of(action))
        after = state.after(changes)
        for conjunct in invariant:
            name = f"{title}: {action.__name__}: {conjunct.__name__}"
            yield Obligation(name, [*known, guard], conjunct(after))
        for step in steps:
            name = f"{title}: {action.__name__}: {step.__name__}"
            yield Obligation(name, [*known, guard], step(state, after))
    for law in laws:
        yield Obligation(f"{title}: {law.__name__}", known, law(state))
    for action, law in laws_of_actions:
        arguments = arguments_of(action)
        guard, _ = action(state, *arguments)
        name = f"{title}: {action.__name__}: {law.__name__}"
        yield Obligation(name, [*known, guard], law(state, *arguments))


def all_obligations(left_out=None):
    """The obligations of all parts of the proof, with one rule left out or with all."""
    rules = [rule for rule in model.RULES if rule != left_out]
    yield from obligations_of_model(
        *("laws", rules, model.ACTIONS, model.INVARIANT),
        *(model.LAWS, model.LAWS_OF_ACTIONS, model.STEPS),
    )
    yield from obligations_of_model(
        "law 2 without clocks",
        [rule for rule in model.RULES_WITHOUT_CLOCK if rule != left_out],
        *(model.ACTIONS_WITHOUT_CLOCK, model.INVARIANT_WITHOUT_CLOCK),
        *(model.LAWS_WITHOUT_CLOCK, model.LAWS_OF_ACTIONS_WITHOUT_CLOCK, model.STEPS),
    )
    for name, assumptions, conclusion in lemma.obligations(rules):
        yield Obligation(f"margin: {name}", assumptions, conclusion, "QF_NRA")


def refutation(obligation, seconds):
    """A solver that finds a contradiction if the obligation holds."""
    solver = z3.Solver()
    solver.set("timeout", int(seconds * 1000))
    solver.add(*(it for it in obligation.assumptions if not is_known(it)))
    solver.add(negate(obligation.conclusion))
    return solver


class Prover:
    """Gives obligations to z3, each one once: a rule that is left out changes only some of them."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.proved = {}

    def prove(self, obligations):
        """Returns how many obligations there are, and which are not proved, and why."""
        count, unproved = 0, []
        for obligation in obligations:
            count += 1
            terms = (*obligation.assumptions, obligation.conclusion)
            # The terms are kept, because the solver uses the number of one that is gone again.
            key = tuple(it if is_known(it) else it.get_id() for it in terms)
            if key in self.proved:
                continue
            answer = refutation(obligation, self.seconds).check()
            if answer == z3.unsat:
                self.proved[key] = terms
            else:
                reason = "there is a counterexample" if answer == z3.sat else "no answer in time"
                unproved.append(f"{obligation.name} ({reason})")
        return count, unproved

    def report(self, left_out=None):
        """Proves everything, prints what is left, and returns how many that are."""
        began = time.monotonic()
        count, unproved = self.prove(all_obligations(left_out))
        took = time.monotonic() - began
        without = f", without the rule `{left_out}`" if left_out else ""
        print(f"{count} obligations{without}: {count - len(unproved)} proved, in {took:.1f} s")
        for name in unproved:
            print(f"  not proved: {name}")
        return len(unproved)


def report_breaks(prover):
    """Whether everything is proved, and something is not for each rule that is left out."""
    holds = prover.report() == 0
    for rule in model.RULES:
        needed = prover.report(rule) > 0
        if not needed:
            print(f"  the proof does not need the rule `{rule}`")
        holds = holds and needed
    return holds


def report_possible_actions():
    """Whether each action may happen in a state that the invariant allows."""
    state = any_state(model.RULES)
    impossible = []
    for action in model.ACTIONS:
        solver = z3.Solver()
        guard, _ = action(state, *arguments_of(action))
        sentences = [*(conjunct(state) for conjunct in model.INVARIANT), guard]
        solver.add(*(it for it in sentences if not is_known(it)))
        if solver.check() != z3.sat:
            impossible.append(action.__name__)
    possible = len(model.ACTIONS) - len(impossible)
    print(f"{possible} of {len(model.ACTIONS)} actions may happen where the invariant holds")
    for name in impossible:
        print(f"  never happens: {name}")
    return not impossible


def as_text(obligation):
    """An obligation in SMT-LIB: a solver has to answer `unsat`."""
    sentences = refutation(obligation, 1).to_smt2()
    return f"; {obligation.name}\n(set-logic {obligation.logic})\n{sentences}"


def write_files(directory):
    """Writes each obligation as a file that a solver of SMT-LIB has to answer with `unsat`."""
    directory.mkdir(parents=True, exist_ok=True)
    count = 0
    for count, obligation in enumerate(all_obligations(), 1):
        name = obligation.name.translate(str.maketrans({" ": "-", ":": "", "'": "", "%": ""}))
        (directory / f"{name}.smt2").write_text(as_text(obligation))
    print(f"{count} files in {directory}")
    return True


def ask_second_solver(seconds):
    """Whether cvc5 confirms every obligation."""
    import cvc5

    began, count, unconfirmed = time.monotonic(), 0, []
    for count, obligation in enumerate(all_obligations(), 1):
        solver = cvc5.Solver()
        solver.setOption("tlimit-per", str(int(seconds * 1000)))
        parser = cvc5.InputParser(solver)
        language = cvc5.InputLanguage.SMT_LIB_2_6
        parser.setStringInput(language, as_text(obligation), obligation.name)
        answer = ""
        while not (command := parser.nextCommand()).isNull():
            answer = command.invoke(solver, parser.getSymbolManager()) or answer
        if answer.strip() != "unsat":
            unconfirmed.append(f"{obligation.name}: {answer.strip()}")
    took = time.monotonic() - began
    print(f"cvc5 confirms {count - len(unconfirmed)} of {count} obligations, in {took:.1f} s")
    for name in unconfirmed:
        print(f"  not confirmed: {name}")
    return not unconfirmed


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--break", dest="left_out", choices=model.RULES)
    parser.add_argument("--breaks", action="store_true")
    parser.add_argument("--history", action="store_true")
    parser.add_argument("--smt2", type=pathlib.Path, metavar="DIRECTORY")
    parser.add_argument("--cvc5", action="store_true")
    parser.add_argument("--time-out", type=float, default=10, help="seconds for each obligation")
    options = parser.parse_args()
    prover = Prover(options.time_out)
    if options.breaks:
        holds = report_breaks(prover)
    elif options.history:
        holds = report_possible_actions() & history.report()
    elif options.smt2:
        holds = write_files(options.smt2)
    elif options.cvc5:
        holds = ask_second_solver(options.time_out)
    else:
        holds = prover.report(options.left_out) == 0
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
