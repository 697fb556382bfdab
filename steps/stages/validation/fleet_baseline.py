"""The baseline of a run itself: median and median absolute deviation over the fleet, and the nodes far below it."""

import statistics
from collections.abc import Collection, Mapping
from typing import NamedTuple

FEWEST = 8
"""Least number of nodes for a baseline: the median of fewer is moved by a single bad one."""
DEVIATIONS, LEAST_SHARE = 5.0, 0.03
"""Deviations and share below the median from which on a node is an outlier, both at once: equal machines differ by a percent."""
_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""
MOST_NAMED = 10


class Baseline(NamedTuple):
    """Median and median absolute deviation of a fleet, and the limit below which a value is an outlier."""

    median: float
    deviation: float
    limit: float


def of_values(values: Collection[float], least_share: float = LEAST_SHARE) -> Baseline | None:
    """Return the baseline of values; None for so few that one bad value moves it. `least_share` is that of the median."""
    if len(values) < FEWEST:
        return None
    middle = statistics.median(values)
    deviation = statistics.median([abs(value - middle) for value in values])
    return Baseline(middle, deviation, middle - max(DEVIATIONS * _TO_SIGMA * deviation, least_share * middle))


def outliers(values: Mapping[str, float]) -> dict[str, float]:
    """Return the nodes far below the median of all nodes, with their values, lowest first; empty for few nodes."""
    baseline = of_values(values.values())
    if baseline is None:
        return {}
    return dict(sorted(((node, value) for node, value in values.items() if value < baseline.limit), key=lambda row: row[1]))


def note(values: Mapping[str, float], what: str, unit: str) -> tuple[str, ...]:
    """Return a note that names the outliers of a quantity with the baseline; empty if there are none."""
    low, baseline = outliers(values), of_values(values.values())
    if not low or baseline is None:
        return ()
    named = ", ".join(f"{node} {value:g}" for node, value in list(low.items())[:MOST_NAMED])
    more = f" and {len(low) - MOST_NAMED} more" if len(low) > MOST_NAMED else ""
    figures = f"median {baseline.median:g} {unit}, deviation {baseline.deviation:.3g}"
    return (f"far below the other nodes of this run in {what}: {named}{more}; {figures}",)
