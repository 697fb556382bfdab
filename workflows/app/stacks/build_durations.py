"""Durations of earlier builds, from the records of runs in the run store: they replace estimates in the plans of later ones."""

import math
from collections.abc import Iterator
from typing import Final

from steps.clients.store import Store
from steps.contract.canonical import UNREADABLE_JSON
from steps.contract.runs.evidence import Evidence, read_observation
from steps.softwarestack.contract.package_build import BuildOutcome, PackageBuilt
from steps.stages.stack_build.contract import BatchBuilt
from workflows.engines.folders import NoStateFolder, StateFolder

_STAGE: Final = "stack_build"
_TASK: Final = "package"
"""Stage and task of the records; their builder's module would load the specs of all pipelines, which a plan of a lock needs not."""
MOST_RUNS: Final = 5
"""Number of newest runs with builds whose records are read."""
MOST_RECORDS: Final = 3000
"""Number of records after which no further run is read."""
_LONGEST: Final = 1e7
"""Seconds of a build above which a record is not believed."""


def measured_here() -> dict[str, float]:
    """Return the measured seconds in this machine's run store; empty if the environment names no place for one."""
    try:
        home = StateFolder.of_environment()
    except NoStateFolder:
        return {}
    return measured(Store(home.store))


def measured(store: Store) -> dict[str, float]:
    """Return the seconds that the build tool took, by package hash and by package name; the newest build of a name counts.

    A record that another version wrote, or that cannot be read, is left out: an estimate does in its place.
    """
    seconds = dict[str, float]()
    for package in _built(store):
        if math.isfinite(package.tool_seconds) and 0 < package.tool_seconds < _LONGEST:
            for key in (package.hash, package.title.partition("@")[0]):
                seconds.setdefault(key, package.tool_seconds)
    return seconds


def _built(store: Store) -> Iterator[PackageBuilt]:
    """Yield the packages that runs have built, those of the newest run first."""
    runs = read = 0
    for key in store.of_runs("run.json"):
        records = _records(store, key.split("/")[1])
        for record in records:
            batch = read_observation(record.observation, BatchBuilt)
            if batch is not None:
                yield from (package for package in batch.packages if package.outcome is BuildOutcome.BUILT)
        runs, read = runs + bool(records), read + len(records)
        if runs == MOST_RUNS or read >= MOST_RECORDS:
            return


def _records(store: Store, run: str) -> tuple[Evidence, ...]:
    try:
        return store.records(run, _STAGE, _TASK)
    except (OSError, *UNREADABLE_JSON):
        return ()
