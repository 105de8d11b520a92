"""Operators that work on plain values and on solver terms alike.

The guards and the invariant of the model are written with these, so that the proof reads them over
terms of z3, and the search for histories (and a checker of recordings) over numbers.
"""

import importlib


def solver():
    """The module of z3, which plain values do not need."""
    return importlib.import_module("z3")


def is_known(condition):
    """Whether a condition is a plain value, and not a term of the solver."""
    return condition is True or condition is False


def joined(join, neutral, parts):
    """The parts joined, where plain values decide as far as they can. A neutral part changes nothing.

    `join` names the solver's function.
    """
    if any(part is (not neutral) for part in parts):
        return not neutral
    terms = [part for part in parts if part is not neutral]
    return getattr(solver(), join)(*terms) if terms else neutral


def all_of(*parts):
    """Every part holds."""
    return joined("And", True, parts)


def any_of(*parts):
    """At least one part holds."""
    return joined("Or", False, parts)


def negate(part):
    """The part does not hold."""
    return not part if is_known(part) else solver().Not(part)


def implies(condition, conclusion):
    """The conclusion holds if the condition does."""
    return any_of(negate(condition), conclusion)


def choose(condition, then, otherwise):
    """One of two values, by a condition."""
    if is_known(condition):
        return then if condition else otherwise
    return solver().If(condition, then, otherwise)


def larger(left, right):
    """The larger of two numbers."""
    return choose(left < right, right, left)


def equal(left, right):
    """Whether two lists of values are the same."""
    return all_of(*(one == other for one, other in zip(left, right, strict=True)))


def put(function, *place_and_value):
    """The function with another value at one place."""
    *place, value = place_and_value
    if len(place) == 1:
        return lambda at: choose(at == place[0], value, function(at))
    return lambda *at: choose(equal(at, place), value, function(*at))


def put_where(function, condition, value):
    """The function with another value wherever a condition holds."""
    return lambda *args: choose(condition(*args), value, function(*args))
