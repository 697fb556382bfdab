"""Section of a run's report about a software stack: builds with times and failures, the tree, tests, what was published."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import Final, TypeVar

from msgspec import Struct

from steps.contract.plain_text import count
from steps.contract.runs.evidence import Evidence, read_observation
from steps.softwarestack.contract.package_build import BuildOutcome, PackageBuilt
from steps.softwarestack.contract.stack_release import PublishedStack
from steps.softwarestack.contract.stack_tests import StackTested, StackTestOutcome, StackTestResult
from steps.softwarestack.contract.tree_check import TreeObservation
from steps.stages.stack_build.contract import BatchBuilt

T = TypeVar("T")
SECTION: Final = "stack"
"""Field of a run's report with what is said about the stack."""
_TESTS: Final = "stack_test"
MOST_TESTS: Final = 200
"""Passed tests that the page lists; all that did not pass are listed whatever their number."""


class BuildRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Build of one package in the report.

    `seconds` is all that its task did for it, `tool_seconds` the build tool's part. `failure` is the class of a failure in `phase`,
    `lines` are decisive lines of its log, whose key in the store is `log`, `reproduce` is the command that repeats it. `stopped`
    are the packages that were not built because of this one, `needs` is the package for which this one was not.
    """

    hash: str
    title: str
    outcome: str
    seconds: float
    tool_seconds: float = 0.0
    overhead_seconds: float = 0.0
    failure: str = ""
    phase: str = ""
    lines: tuple[str, ...] = ()
    reproduce: str = ""
    log: str = ""
    size: int = 0
    needs: str = ""
    stopped: tuple[str, ...] = ()


class BuildTimes(Struct, frozen=True, kw_only=True):
    """Times of a stack's builds in seconds.

    `elapsed` is from the first start to the last end, `serial` the sum over all packages, `tool` the build tools' part of it,
    `overhead` that of installing dependencies, packing and storing.
    """

    elapsed: float
    serial: float
    tool: float
    overhead: float

    @property
    def gain(self) -> float:
        """Return how many times faster the builds were than one after another."""
        return self.serial / self.elapsed if self.elapsed > 0 else 1.0

    @property
    def overhead_share(self) -> float:
        """Return the part of all time that was not the build tools', from 0 to 1."""
        return self.overhead / self.serial if self.serial > 0 else 0.0


class StackReport(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Software stack that a run built, as the report shows it; made by `details`.

    `packages` is the number of installed packages, `cached` of those that no task of this run built. `version` is the published
    version, `before` the one published until then (empty: none).
    """

    key: str = ""
    tree: str = ""
    packages: int = 0
    cached: int = 0
    files: int = 0
    size: int = 0
    builds: tuple[BuildRow, ...] = ()
    times: BuildTimes | None = None
    tests: tuple[StackTestResult, ...] = ()
    problems: tuple[str, ...] = ()
    version: str = ""
    before: str = ""
    unchanged: bool = False
    copied: int = 0
    signature: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed_versions: tuple[str, ...] = ()
    removed_packages: tuple[str, ...] = ()

    @property
    def failed(self) -> tuple[BuildRow, ...]:
        """Return the builds that failed."""
        return tuple(row for row in self.builds if row.outcome == BuildOutcome.FAILED)

    @property
    def built(self) -> tuple[BuildRow, ...]:
        """Return the builds that this run made, the longest first."""
        rows = [row for row in self.builds if row.outcome == BuildOutcome.BUILT]
        return tuple(sorted(rows, key=lambda row: -row.seconds))

    @property
    def shown_tests(self) -> tuple[StackTestResult, ...]:
        """Return the tests that the page lists: all that did not pass, then the longest ones that did."""
        failed = [test for test in self.tests if test.outcome is not StackTestOutcome.PASS]
        passed = sorted((test for test in self.tests if test.outcome is StackTestOutcome.PASS), key=lambda test: -test.seconds)
        return (*failed, *passed[:MOST_TESTS])


def details(latest: Sequence[Evidence]) -> StackReport | None:
    """Return the report's data about the stack that a run built; None for a run that builds none.

    Unreadable records are left out.
    """
    if not any(record.stage.startswith("stack_") for record in latest):
        return None
    batches = [(record, batch) for record, batch in _observed(latest, "stack_build", BatchBuilt)]
    packages = [package for _, batch in batches for package in batch.packages]
    tree = next((tree for _, tree in _observed(latest, "stack_tree", TreeObservation)), TreeObservation(stack=""))
    tests = [result for _, tested in _observed(latest, _TESTS, StackTested) for result in tested.results]
    published = next((seen for _, seen in _observed(latest, "stack_publish", PublishedStack)), PublishedStack(version=""))
    made = sum(package.outcome is BuildOutcome.BUILT for package in packages)
    installed = len(tree.packages) or published.packages
    return StackReport(
        key=tree.key or published.key,
        tree=tree.digest,
        packages=installed,
        cached=max(0, installed - made),
        files=tree.files,
        size=tree.size or published.size,
        builds=tuple(_rows(packages)),
        times=_times([record for record, _ in batches], packages),
        tests=tuple(tests),
        problems=tuple(f"{problem.path}: {problem.detail}" for problem in tree.problems),
        version=published.version,
        before=published.before,
        unchanged=published.unchanged,
        copied=published.copied,
        signature=published.signature if published.version else "",
        added=published.packages_added,
        removed=published.packages_removed,
        changed=published.packages_changed,
        removed_versions=published.removed,
        removed_packages=published.removed_packages,
    )


def nothing_to_do(latest: Iterable[Evidence]) -> str:  # noqa: ARG001  # a run with nothing to do is not started
    """Return an empty text: a stack that is published already starts no run."""
    return ""


def untested(latest: Iterable[Evidence]) -> tuple[tuple[str, str, str], ...]:
    """Return the tests that were not run because the CPU of the machine cannot, by CPU target: stage, tests and reason."""
    rows = list[tuple[str, str, str]]()
    for record, tested in _observed(latest, _TESTS, StackTested):
        numbers = Counter((result.target, result.output) for result in tested.results if result.target)
        rows += [(record.stage, f"{count(number, 'test')} of {target}", reason) for (target, reason), number in numbers.items()]
    return tuple(rows)


def template() -> str:
    """Return the Jinja template of the report's section about a stack; it renders the result of `details`."""
    return resources.files("steps.softwarestack").joinpath("report.html.j2").read_text()


def _observed(latest: Iterable[Evidence], stage: str, kind: type[T]) -> Iterator[tuple[Evidence, T]]:
    for record in latest:
        if record.stage == stage and (observation := read_observation(record.observation, kind)) is not None:
            yield record, observation


def _rows(packages: Sequence[PackageBuilt]) -> Iterator[BuildRow]:
    titles = {package.hash: package.title for package in packages}
    for package in packages:
        yield BuildRow(
            hash=package.hash,
            title=package.title,
            outcome=package.outcome.value,
            seconds=package.seconds,
            tool_seconds=package.tool_seconds,
            overhead_seconds=package.overhead_seconds,
            failure=package.failure.value if package.failure is not None else "",
            phase=package.phase,
            lines=package.lines,
            reproduce=package.reproduce,
            log=package.log,
            size=package.size,
            needs=titles.get(package.needs, package.needs[:12]),
            stopped=tuple(other.title for other in packages if other.needs == package.hash),
        )


def _times(records: Sequence[Evidence], packages: Iterable[PackageBuilt]) -> BuildTimes | None:
    """Return the times of the builds that this run made; None if it made none."""
    made = [package for package in packages if package.outcome is BuildOutcome.BUILT]
    if not made:
        return None
    return BuildTimes(
        elapsed=max(record.finished for record in records) - min(record.started for record in records),
        serial=sum(package.seconds for package in made),
        tool=sum(package.tool_seconds for package in made),
        overhead=sum(package.overhead_seconds for package in made),
    )
