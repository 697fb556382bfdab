"""Belief propagation: which of the parts that failing tests share is probably bad.

A test fails if any of its parts is bad, except that a share of tests shows the wrong result. Beliefs are log odds.
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

Variable = TypeVar("Variable", bound=Hashable)

Evidence = tuple[Sequence[Variable], bool, float]
"""A test: its variables, True if it failed, and the rate of wrong results of such a test."""

SWEEPS, SETTLED = 6, 0.1
"""Passes over the failing part of the graph, which end early once no message changes by more than the second number."""
HARMLESS = -7.0
"""A variable is not bad if its log odds stay below this even when every failure counts fully against it."""
FURTHEST = 60.0
"""Log odds are kept within this bound, so that exponentials stay finite."""


def probability(log_odds: float) -> float:
    """Return the probability of log odds."""
    return 1 / (1 + math.exp(-min(max(log_odds, -FURTHEST), FURTHEST)))


def log_odds(chance: float) -> float:
    """Return the log odds of a probability."""
    bounded = min(max(chance, 1e-26), 1 - 1e-16)
    return math.log(bounded / (1 - bounded))


def weight(noise: float) -> float:
    """Return the log likelihood ratio of one result at a rate of wrong results."""
    return math.log((1 - noise) / noise)


def propagate(prior: Mapping[Variable, float], tests: Sequence[Evidence[Variable]]) -> dict[Variable, float]:
    """Return the log odds of each variable being bad, from tests.

    Only failing tests, and passed tests of variables that might still be bad, need iteration. Each other pass lowers the log odds
    of its variables by its weight.
    """
    belief, weights = dict(prior), dict[float, float]()
    failing: dict[Variable, float] = {}
    for variables, failed, noise in tests:
        size = weights.get(noise) or weights.setdefault(noise, weight(noise))
        if failed:
            for variable in variables:
                failing[variable] = failing.get(variable, 0.0) + size
        else:
            for variable in variables:
                belief[variable] -= size
    doubtful = {variable for variable, size in failing.items() if belief[variable] + size > HARMLESS}
    active: list[Evidence[Variable]] = []
    for test in tests:
        variables, failed, noise = test
        if failed:
            active.append(test)
        elif not doubtful.isdisjoint(variables):
            active.append(test)
            for variable in variables:
                belief[variable] += weights[noise]
    messages = [[0.0] * len(variables) for variables, _, _ in active]
    for _ in range(SWEEPS):
        largest = 0.0
        for test, sent in zip(active, messages, strict=True):
            largest = max(largest, _send(belief, test, sent))
        if largest < SETTLED:
            break
    return belief


def _send(belief: dict[Variable, float], test: Evidence[Variable], sent: list[float]) -> float:
    """Send the messages of one test to its variables, in place; return the largest change."""
    variables, failed, noise = test
    cavity = [belief[variable] - old for variable, old in zip(variables, sent, strict=True)]
    good = [1 / (1 + math.exp(value)) if value < FURTHEST else 0.0 for value in cavity]
    largest = 0.0
    for place, variable in enumerate(variables):
        others = 1.0
        for other, chance in enumerate(good):
            if other != place:
                others *= chance
        wrong = others * noise + (1 - others) * (1 - noise)
        message = math.log((1 - noise) / wrong) if failed else math.log(noise / (1 - wrong))
        belief[variable] = cavity[place] + message
        change = message - sent[place]
        largest = max(largest, change, -change)
        sent[place] = message
    return largest


def dirty(belief: Mapping[Variable, float], variables: Iterable[Variable]) -> float:
    """Return the probability that at least one of the variables is bad."""
    clean = 1.0
    for variable in variables:
        clean *= 1 - probability(belief[variable])
    return 1 - clean
