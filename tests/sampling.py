"""Samples of tests that repeat one code path: `tests/run` takes some of each group by a seed, and `tests/run --long` takes all.

Whole functions are chosen among a group by the mark `sampled(group)`; rows of one parametrised function by `sampled_rows(count)`.
Where only some rows of a function repeat each other, each of them has the mark `sampled_rows(count, family)`.
The seed is the commit (`BRINGUP_SAMPLE` names another), so a commit is always tested alike, and commits together test everything.
pytest itself takes every test that it is asked for.
"""

import os
import random
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

SEED = "BRINGUP_SAMPLE"
GROUPS = {
    "kills": 1,
    "reaching hosts": 2,
    "preparing hosts": 4,
    "rke2 on hosts": 3,
    "disturbed runs on argo": 2,
    "parts of a real cluster": 2,
    "ways to build the step image": 1,
    "kills of image builds": 1,
    "images published": 1,
    "machines that boot": 1,
    "equal bytes": 1,
    "builds that fail": 2,
}
"""Number of test functions or files that run of each group. The mark `sampled` puts a test into a group."""
WHOLE_FILES = frozenset({"parts of a real cluster"})
"""Groups of which files are chosen, not functions: the set-up of such a file takes longer than its tests."""


def seed() -> str:
    """Return the seed of the samples: the named one, else the commit's id, else a constant outside a Git checkout."""
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return os.environ.get(SEED) or done.stdout.strip() or "0"


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take away the tests that the seed in the environment does not choose; without a seed, none.

    Raises pytest.UsageError for a group that is not in `GROUPS`.
    """
    chosen_by = os.environ.get(SEED)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    rows: defaultdict[str, set[str]] = defaultdict(set)
    for item in items:
        if (group := _group(item)) is not None:
            groups[group].add(_sampled_unit(item, group))
        if _row_count(item):
            rows[_family(item)].add(item.nodeid)
    if unknown := set(groups) - set(GROUPS):
        raise pytest.UsageError(f"tests/sampling.py has no group {', '.join(sorted(unknown))}")
    if not chosen_by:
        return

    def sample(name: str, names: set[str], count: int) -> set[str]:
        return set(random.Random(f"{chosen_by} {name}").sample(sorted(names), min(count, len(names))))

    units = {group: sample(group, names, GROUPS[group]) for group, names in groups.items()}
    counts = {_family(item): _row_count(item) for item in items}
    chosen_rows = {family: sample(family, names, counts[family]) for family, names in rows.items()}

    def is_chosen(item: pytest.Item) -> bool:
        group = _group(item)
        in_group = group is None or _sampled_unit(item, group) in units[group]
        return in_group and item.nodeid in chosen_rows.get(_family(item), {item.nodeid})

    left_out = [item for item in items if not is_chosen(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if is_chosen(item)]


def _group(item: pytest.Item) -> str | None:
    """Return the group of a test: its own mark wins over that of its module, and `sampled(None)` takes it out of the group."""
    mark = item.get_closest_marker("sampled")
    return None if mark is None else mark.args[0]


def _sampled_unit(item: pytest.Item, group: str) -> str:
    """Return what a group is sampled by: the test's file or its function."""
    return item.nodeid.partition("::")[0] if group in WHOLE_FILES else _function(item)


def _row_count(item: pytest.Item) -> int:
    """Return how many rows of a test's function or family run, 0 for all."""
    mark = item.get_closest_marker("sampled_rows")
    return 0 if mark is None else mark.args[0]


def _family(item: pytest.Item) -> str:
    """Return what a test's row is sampled among: the family that its mark names, else all rows of its function."""
    mark = item.get_closest_marker("sampled_rows")
    return _function(item) if mark is None or len(mark.args) == 1 else mark.args[1]


def _function(item: pytest.Item) -> str:
    """Return a test's id without its parameters: a function with its fixtures is sampled as a whole."""
    return item.nodeid.partition("[")[0]
