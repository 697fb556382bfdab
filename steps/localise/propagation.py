"""Belief propagation: which of the parts that failing tests share is probably bad.

A test fails if any of its parts is bad, except that a share of tests shows the wrong result. Beliefs are log odds.
"""

import math
from collections.abc import Iterable, Sequence

Evidence = tuple[Sequence[int], bool, float]
"""A test: the numbers of its variables, True if it failed, and the rate of wrong results of such a test."""

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


def propagate(prior: Sequence[float], tests: Sequence[Evidence]) -> list[float]:
    """Return the log odds of each variable being bad, by its number, from tests.

    Only failing tests, and passed tests of variables that might still be bad, need iteration. Each other pass lowers the log odds
    of its variables by its weight.
    """
    belief, weights = list(prior), {noise: weight(noise) for noise in {noise for _, _, noise in tests}}
    failing: dict[int, float] = {}
    for variables, failed, noise in tests:
        size = weights[noise]
        if failed:
            for variable in variables:
                failing[variable] = failing.get(variable, 0.0) + size
        else:
            for variable in variables:
                belief[variable] -= size
    doubtful = {variable for variable, size in failing.items() if belief[variable] + size > HARMLESS}
    active: list[tuple[Sequence[int], bool, float, list[float]]] = []
    harmless = doubtful.isdisjoint
    for variables, failed, noise in tests:
        if failed:
            active.append((variables, failed, noise, [0.0] * len(variables)))
        elif not harmless(variables):
            active.append((variables, failed, noise, [0.0] * len(variables)))
            for variable in variables:
                belief[variable] += weights[noise]
    for _ in range(SWEEPS):
        largest = 0.0
        for variables, failed, noise, sent in active:
            change = _send(belief, variables, failed, noise, sent)
            if change > largest:
                largest = change
        if largest < SETTLED:
            break
    return belief


def _send(belief: list[float], variables: Sequence[int], failed: bool, noise: float, sent: list[float]) -> float:
    """Send the messages of one test to its variables, in place; return the largest change."""
    exp, log, right = math.exp, math.log, 1 - noise
    cavity = [belief[variable] - old for variable, old in zip(variables, sent, strict=True)]
    good = [1 / (1 + exp(value)) if value < FURTHEST else 0.0 for value in cavity]
    if len(good) == 4:
        # most of them, written out: two nodes, the path between them, and their pair
        first, second, third, fourth = good
        inner, outer = second * third, first * second
        products = [inner * fourth, first * third * fourth, outer * fourth, outer * third]
    else:
        products = [math.prod(good[:place] + good[place + 1 :], start=1.0) for place in range(len(good))]
    largest = 0.0
    for place, others in enumerate(products):
        wrong = others * noise + (1 - others) * right
        message = log(right / wrong) if failed else log(noise / (1 - wrong))
        belief[variables[place]] = cavity[place] + message
        change = message - sent[place]
        if change > largest or -change > largest:
            largest = abs(change)
        sent[place] = message
    return largest


def dirty(belief: Sequence[float], variables: Iterable[int]) -> float:
    """Return the probability that at least one of the variables is bad."""
    clean = 1.0
    for variable in variables:
        clean *= 1 - probability(belief[variable])
    return 1 - clean
