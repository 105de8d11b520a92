"""The lemma of the margin: why the clocks of the model never lose.

A candidate's real clock may lose a share of the time: it shows at least (1 - share) of what passes.
Divided by (1 - share), it is a clock that never loses, and that one is the model's. By it, the real
deadline is no later than the sending plus the time that the store granted, if the margin is at least
the share of that time. A clock that gains only ends terms earlier.
"""

import z3

from logic import all_of


def obligations(rules):
    """Names, assumptions and conclusions of the lemma's parts."""
    # What the clock shows at least of each unit of time, 1 - share, and its inverse.
    shows, scale = z3.Reals("shows scale")
    rate = [0 < shows, shows <= 1, scale * shows == 1]
    passed, shown = z3.Reals("passed shown")
    yield (
        "the scaled clock never loses",
        [*rate, 0 <= passed, shows * passed <= shown],
        passed <= scale * shown,
    )
    ttl, margin, configured, mark, until, now = z3.Reals("ttl margin configured mark until now")
    enough = (1 - shows) * ttl <= margin if "margin" in rules else margin == 0
    yield (
        "the scaled deadline is at most the time granted after the sending",
        [*rate, 0 < ttl, enough, until == mark + ttl - margin],
        scale * (until - mark) <= ttl,
    )
    yield (
        "both clocks pass the deadline together",
        rate,
        (now < until) == (scale * now < scale * until),
    )
    larger = z3.If(configured < ttl / 100, ttl / 100, configured)
    yield (
        "the elector's margin covers 1%, and what was configured",
        [0 < ttl, margin == larger if "margin" in rules else margin == 0],
        all_of(ttl / 100 <= margin, configured <= margin),
    )
