"""The baseline of a run itself: median and median absolute deviation over the fleet, and the nodes far below it."""

import statistics
from collections.abc import Mapping

FEWEST = 8
"""Least number of nodes for a baseline: the median of fewer is moved by a single bad one."""
DEVIATIONS, LEAST_SHARE = 5.0, 0.03
"""A node is an outlier so many deviations below the median, and by at least this share: equal machines differ by a percent."""
_TO_SIGMA = 1.4826
"""Factor from the median absolute deviation to the standard deviation of a normal distribution."""
MOST_NAMED = 10


def outliers(values: Mapping[str, float]) -> dict[str, float]:
    """Return the nodes far below the median of all nodes, with their values, lowest first; empty for few nodes."""
    if len(values) < FEWEST:
        return {}
    middle, spread = _spread(values)
    limit = middle - max(DEVIATIONS * _TO_SIGMA * spread, LEAST_SHARE * middle)
    return dict(sorted(((node, value) for node, value in values.items() if value < limit), key=lambda row: row[1]))


def note(values: Mapping[str, float], what: str, unit: str) -> tuple[str, ...]:
    """Return a note that names the outliers of a quantity with the baseline; empty if there are none."""
    low = outliers(values)
    if not low:
        return ()
    middle, spread = _spread(values)
    named = ", ".join(f"{node} {value:g}" for node, value in list(low.items())[:MOST_NAMED])
    more = f" and {len(low) - MOST_NAMED} more" if len(low) > MOST_NAMED else ""
    return (f"far below the other nodes of this run in {what}: {named}{more}; median {middle:g} {unit}, deviation {spread:.3g}",)


def _spread(values: Mapping[str, float]) -> tuple[float, float]:
    middle = statistics.median(values.values())
    return middle, statistics.median(abs(value - middle) for value in values.values())
