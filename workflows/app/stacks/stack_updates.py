"""The use case of `bringup stack update`: what a newer lock would change, and which builds that takes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from steps.contract.plain_text import count
from workflows.app.stacks import stack_locks, stack_plans
from workflows.app.stacks.stack_locks import MadeLock
from workflows.app.stacks.stack_plans import PlannedStack, duration
from workflows.softwarestack.lock_changes import ChangeKind, LockChange


@dataclass(frozen=True)
class StackUpdate:
    """A newer lock that is not written yet, and the plan of its builds on what the build cache has."""

    made: MadeLock
    planned: PlannedStack

    def rows(self) -> list[tuple[str, ...]]:
        """Return a row for each change: package, version now and then, the reason, what becomes of it, and its build time."""
        return [
            (change.package, change.before or "-", change.after or "-", change.why, *self._result(change))
            for change in self.made.changes
        ]

    def sentences(self) -> Iterator[str]:
        """Yield the counts of changes, and what a build of the newer lock takes, as sentences for a person."""
        path = self.made.path
        if not self.made.changes:
            yield f"{path}: nothing newer"
            return
        kinds = ((kind, sum(change.kind is kind for change in self.made.changes)) for kind in ChangeKind)
        yield f"{path}{' (no lock yet)' if self.made.is_first else ''}: {', '.join(f'{number} {kind}' for kind, number in kinds)}"
        builds = self.planned.plan.builds
        caused = len({change.hash for change in self.made.changes} & builds.keys())
        others = f", {len(builds) - caused} of them not changed and not in the cache" if caused < len(builds) else ""
        yield f"{count(len(builds), 'package')} to build{others}; {len(self.planned.plan.cached)} in the cache"
        if builds:
            facts = self.planned.summary()
            for makespan in facts["makespans"]:
                yield f"about {duration(makespan['seconds'])} with {makespan['slots']} builds at a time"
            if estimated := len(builds) - facts["measured"]:
                yield f"times of {count(estimated, 'build')} are estimates by size class (~)"
        yield from self.planned.notes

    def values(self, *, written: bool) -> dict[str, Any]:
        """Return everything as data; `written` says that the lock file was replaced."""
        head = {"lock": str(self.made.path), "written": written, "changed": bool(self.made.changes), "first": self.made.is_first}
        return {**head, "changes": [self._data(change) for change in self.made.changes], "plan": self.planned.values()}

    def _data(self, change: LockChange) -> dict[str, Any]:
        fields: dict[str, Any] = msgspec.to_builtins(change)
        del fields["line"]
        build = self.planned.plan.builds.get(change.hash)
        times = {"seconds": round(build.seconds), "measured": build.measured} if build else {}
        return {**fields, "result": self._result(change)[0], **times}

    def _result(self, change: LockChange) -> tuple[str, str]:
        """Return what a build of the newer lock does with a package, in a word, and how long that takes."""
        plan = self.planned.plan
        if build := plan.builds.get(change.hash):
            return "build", f"{'' if build.measured else '~'}{duration(build.seconds)}"
        lists = {"external": plan.externals, "cached": plan.cached, "not needed": plan.unneeded}
        return next((word for word, hashes in lists.items() if change.hash in hashes), "-"), "-"


def newer(source: str, cache: Path | None, durations: Path | None, slots: Sequence[int]) -> StackUpdate:
    """Return what a newer lock of a stack spec would change; nothing is written.

    Raises `SpecErrors` for the spec, `LockError` if it cannot be locked or a file is unusable.
    """
    made = stack_locks.make(source)
    at_once = tuple(slots) or (made.spec.builds_at_once,)
    planned = stack_plans.planned(made.graph, made.spec, cache, durations, at_once, Path(source).resolve().parent)
    return StackUpdate(made, planned)
