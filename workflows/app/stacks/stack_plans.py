"""The use case of `bringup stack plan`: read a lock and a build cache, and tell what a build of the stack would do."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from steps.contract.plain_text import count
from workflows.app.stacks import build_durations
from workflows.softwarestack import build_tasks, easybuild_lock, spack_lock, stack_plan
from workflows.softwarestack.bounded_files import read_bounded
from workflows.softwarestack.build_graph import BuildGraph, LockError, PackageNode
from workflows.softwarestack.spack_cache import cached_hashes
from workflows.softwarestack.stack_plan import StackPlan

if TYPE_CHECKING:
    from steps.softwarestack.contract.stack_input import StackInput, StackTestCase
    from workflows.softwarestack.stack_spec import StackSpec

SLOTS: Final = (4, 16, 64)
"""Numbers of builds at a time for which a plan tells its duration."""
_LOCK_STARTS: Final = (b"{", b"[")
_KIND_BYTES: Final = 200
"""Bytes at the start of a lock in which its kind stands."""


@dataclass(frozen=True)
class PlannedStack:
    """A plan, and the numbers of slots for which its duration is wanted.

    `stale` says why a build would refuse the lock that the spec names; empty if it would not, or if only a lock was given. `tests`
    are those of the stack, `own` the names of those that the spec has; the others are shipped.
    """

    plan: StackPlan
    slots: tuple[int, ...]
    stale: str = ""
    tests: "tuple[StackTestCase, ...]" = ()
    own: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return numbers of packages by what becomes of them, times in seconds, and the size of the rendered workflow in bytes."""
        plan, schedule = self.plan, self.plan.schedule
        return {
            "lock": plan.graph.source,
            "stale": self.stale,
            "packages": len(plan.graph.nodes),
            "builds": len(plan.builds),
            "cached": len(plan.cached),
            "unneeded": len(plan.unneeded),
            "externals": len(plan.externals),
            "depth": max(schedule.depth.values(), default=0),
            "measured": sum(build.measured for build in plan.builds.values()),
            "critical_path_s": round(schedule.critical_path),
            "serial_s": round(schedule.serial),
            "makespans": [self._makespan(slots) for slots in self.slots],
            "rendered_bytes": build_tasks.rendered_bytes(plan),
        }

    def values(self) -> dict[str, Any]:
        """Return everything as data: the summary, each build in the order in which it starts, and the longest chain."""
        nodes = self.plan.graph.nodes
        return {
            **self.summary(),
            "tests": [{"name": test.name, "shipped": test.name not in self.own, "incident": test.incident} for test in self.tests],
            "notes": list(self.notes),
            "targets": self.targets,
            "longest_chain": [nodes[hash_].title for hash_ in self.plan.schedule.longest_chain()],
            "order": [
                {
                    "hash": build.node.hash,
                    "package": build.node.title,
                    "compiler": build.node.compiler,
                    "target": build.node.target,
                    "class": build.size.name,
                    "seconds": round(build.seconds),
                    "measured": build.measured,
                    "depth": self.plan.schedule.depth[build.node.hash],
                    "waits_for": list(self.plan.schedule.needs[build.node.hash]),
                }
                for build in self.plan.ordered
            ],
        }

    @property
    def targets(self) -> dict[str, int]:
        """Return the number of builds, and of packages in the cache, by CPU target."""
        nodes = self.plan.graph.nodes
        return dict(Counter(nodes[hash_].target for hash_ in (*self.plan.builds, *self.plan.cached) if nodes[hash_].target))

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each build, in the order in which they start."""
        depth, remaining = self.plan.schedule.depth, self.plan.schedule.remaining
        return [
            (
                _title(build.node, self.plan.graph),
                build.node.hash[:7],
                build.node.compiler,
                build.size.name,
                f"{'' if build.measured else '~'}{duration(build.seconds)}",
                str(depth[build.node.hash]),
                duration(remaining[build.node.hash]),
            )
            for build in self.plan.ordered
        ]

    def sentences(self) -> Iterator[str]:
        """Yield the summary as sentences for a person."""
        facts = self.summary()
        if self.stale:
            yield f"the lock is stale, and a build would refuse it: {self.stale}"
        yield (
            f"{facts['builds']} builds of {facts['packages']} packages: {facts['cached']} are in the cache, {facts['externals']}"
            f" come with the system, {facts['unneeded']} are not needed"
        )
        if len(targets := self.targets) > 1:
            numbers = ", ".join(f"{target} ({count(number, 'package')})" for target, number in sorted(targets.items()))
            yield f"CPU targets: {numbers}"
        if self.plan.builds:
            yield from self._time_sentences(facts)
        own = sum(test.name in self.own for test in self.tests)
        if self.tests:
            yield f"{count(own, 'test')} of the spec, {len(self.tests) - own} that bringup ships for packages without one"
        for test in self.tests:
            if test.name not in self.own:
                yield f"shipped test {test.name}: {test.incident}"
        yield from self.notes

    def _time_sentences(self, facts: Mapping[str, Any]) -> Iterator[str]:
        chain = [self.plan.graph.nodes[hash_].name for hash_ in self.plan.schedule.longest_chain()]
        yield f"depth {facts['depth']}, critical path {duration(facts['critical_path_s'])}: {' → '.join(chain)}"
        for makespan in facts["makespans"]:
            yield (
                f"{makespan['slots']} at a time: {duration(makespan['seconds'])}, {makespan['ratio']:.2f} × the least possible"
                f" (with barriers between tiers {duration(makespan['tier_barriers_s'])})"
            )
        yield f"one after another: {duration(facts['serial_s'])}"
        if estimated := facts["builds"] - facts["measured"]:
            yield f"times of {estimated} builds are estimates by size class (~), until a run has measured them"
        size = facts["rendered_bytes"]
        yield f"the workflow's tasks take {size} bytes at most, {size // facts['builds']} a build"

    def _makespan(self, slots: int) -> dict[str, Any]:
        schedule = self.plan.schedule
        seconds, bound = schedule.makespan(slots), schedule.bound(slots)
        barriers = round(schedule.tier_barriers(slots))
        ratio = round(seconds / bound, 4) if bound else 1.0
        return {"slots": slots, "seconds": round(seconds), "ratio": ratio, "tier_barriers_s": barriers}


def prepare(source: str, cache: Path | None, durations: Path | None, slots: Sequence[int]) -> PlannedStack:
    """Return the plan of a lock, or of the lock that a stack spec names.

    `cache` is the folder of a build cache, by default that of the spec. `durations` is a JSON object of seconds by hash or package
    name, which wins over what earlier runs on this machine measured. Raises `LockError` for unusable files, `SpecErrors` for an
    unusable spec.
    """
    path = Path(source)
    graph, spec = _planned_source(path)
    made = planned(graph, spec, cache, durations, slots, path.absolute().parent)
    return made if spec is None else _of_spec(made, spec, path)


def _of_spec(made: PlannedStack, spec: "StackSpec", path: Path) -> PlannedStack:
    """Return a plan with the tests of the spec's stack, or with the reason for which a build would refuse its lock."""
    from workflows.softwarestack import stack_resolution

    notes = (*made.notes, *spec.notes, *spec.target_notes, *spec.arrangement, *_left_out(spec))
    made = replace(made, own=spec.test_names, notes=notes)
    try:
        resolved = stack_resolution.resolve(spec, path.absolute().parent)
    except LockError as error:
        return replace(made, stale=f"{error}; {error.hint}")
    return replace(made, tests=resolved.stack.tests, notes=(*made.notes, *_not_run_here(resolved.stack)))


def _not_run_here(stack: "StackInput") -> Iterator[str]:
    """Yield a sentence for each CPU target whose code this machine does not run."""
    from steps.softwarestack.builds import builder_cpu
    from steps.softwarestack.tree_tests import module_tests

    for target in (lacking := module_tests.lacking_targets(stack, builder_cpu.read())):
        yield f"not tested if this machine builds: commands of {target}, because {module_tests.lacking_sentence(target, lacking)}"


def _left_out(spec: "StackSpec") -> Iterator[str]:
    """Yield a sentence about shipped tests that the spec leaves out."""
    if not spec.smoke_tests:
        yield "not tested by the tests that bringup ships: smoke_tests is false"
    elif spec.skip_smoke_tests:
        yield f"not tested by shipped tests {', '.join(spec.skip_smoke_tests)}: skip_smoke_tests names them"


def planned(
    graph: BuildGraph,
    spec: "StackSpec | None",
    cache: Path | None,
    durations: Path | None,
    slots: Sequence[int],
    spec_folder: Path,
) -> PlannedStack:
    """Return the plan of a lock's graph; `spec`, if known, names the build cache, and lies in `spec_folder`. See `prepare`.

    A registry that this machine cannot read counts as empty, and a note says so.
    """
    available, notes = cached_hashes(cache) if cache else frozenset[str](), tuple[str, ...]()
    if spec is not None:
        from workflows.app.stacks import stack_pipeline

        hashes, notes = stack_pipeline.listed_here(spec, spec_folder, cache)
        available |= hashes
    measured, stated = build_durations.measured_here(), _durations(durations) if durations else {}
    # a plan prefers seconds by hash, so a name that the file states must not meet a measured hash
    kept = {key: value for key, value in measured.items() if key not in graph.nodes or graph.nodes[key].name not in stated}
    return PlannedStack(stack_plan.plan(graph, available, kept | stated), tuple(slots or SLOTS), notes=notes)


def graph_of(source: str) -> BuildGraph:
    """Return the graph of a lock, or of the lock that a stack spec names. Raises `LockError` for unusable files."""
    return _planned_source(Path(source))[0]


def tree_lines(graph: BuildGraph, builds: Mapping[str, Any]) -> Iterator[str]:
    """Yield the roots and, indented below each package, what it needs. A package that was shown before ends with `…`."""
    shown = set[str]()
    waiting = [(root, 0) for root in reversed(graph.roots)]
    while waiting:
        hash_, depth = waiting.pop()
        node = graph.nodes[hash_]
        again = hash_ in shown and bool(node.dependencies)
        yield f"{'  ' * depth}{_title(node, graph)} {hash_[:7]}{_state(node, builds)}{' …' if again else ''}"
        if not again:
            shown.add(hash_)
            waiting += [(needed, depth + 1) for needed in reversed(node.dependencies)]


def dot_lines(plan: StackPlan) -> Iterator[str]:
    """Yield the builds as a graph in Graphviz' language, with edges from a build to what it waits for."""
    yield "digraph stack {"
    yield "  rankdir=LR; node [shape=box];"
    edges = build_tasks.direct_needs(plan.schedule)
    for build in plan.ordered:
        hash_ = build.node.hash
        yield f'  "{hash_}" [label="{_title(build.node, plan.graph)}\\n{hash_[:7]}"];'
        yield from (f'  "{hash_}" -> "{needed}";' for needed in edges[hash_])
    yield "}"


def duration(seconds: float) -> str:
    """Return a duration for people, such as `45 s`, `3 min` or `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _title(node: PackageNode, graph: BuildGraph) -> str:
    """Return name and version of a package, with its CPU target in a lock for several."""
    return f"{node.title} {node.target}" if graph.targets else node.title


def _state(node: PackageNode, builds: Mapping[str, Any]) -> str:
    if node.external:
        return " (external)"
    return "" if node.hash in builds else " (cached)"


def _planned_source(path: Path) -> "tuple[BuildGraph, StackSpec | None]":
    """Return the graph of the lock that is meant, and the spec that names it: a file that holds JSON is the lock itself."""
    content = read_bounded(path, spack_lock.LARGEST_BYTES, "give the path of a stack.yaml or a spack.lock")
    if content.lstrip()[:1] in _LOCK_STARTS:
        return _graph(content, path), None
    from workflows.softwarestack.stack_spec import load_stack

    spec = load_stack(path)
    lock = path.parent / spec.lock_path
    if not lock.is_file():
        raise LockError(f"{path}: its lock {lock} is not there", "make it: `bringup stack lock`")
    return _graph(read_bounded(lock, spack_lock.LARGEST_BYTES, "make it again: `bringup stack lock`"), lock), spec


def _graph(content: bytes, path: Path) -> BuildGraph:
    """Return the graph of a lock of either kind: EasyBuild's names its kind in its first lines, Spack's has a `_meta` section."""
    if b'"kind"' in content[:_KIND_BYTES]:
        return easybuild_lock.graph(easybuild_lock.parse(content, str(path)), str(path))
    return spack_lock.parse(content, str(path))


def _durations(path: Path) -> dict[str, float]:
    hint = 'give a JSON object of seconds by package name or hash, such as {"hdf5": 412.5}'
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise LockError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except (ValueError, RecursionError) as error:
        raise LockError(f"{path}: it is no JSON: {error}", hint) from error
    if not isinstance(data, dict):
        raise LockError(f"{path}: it is no JSON object", hint)
    for name, seconds in data.items():
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e7:
            raise LockError(f"{path}: the duration of {name[:80]!r} is no number of seconds", hint)
    return {name: float(seconds) for name, seconds in data.items()}
