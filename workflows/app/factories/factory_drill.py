"""A drill of a factory: production is cut off from it, it is thrown away and built again, and the report says what was lost."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.clock import Clock, RealClock
from steps.contract import plain_text
from steps.contract.exit import ExitCode
from workflows.app.factories import factory_pipeline, factory_rebuild, production_cut
from workflows.app.factories.factory_rebuild import PreparedRebuild
from workflows.app.factories.production_cut import TrialOutcome
from workflows.app.factories.surviving_copies import MOST_FILES
from workflows.app.factories.unplanned_contents import UnplannedContents
from workflows.app.run_options import StartOptions
from workflows.app.runs.screen import Screen
from workflows.spec import FactorySpec

LOOK_SECONDS = 15.0
"""Time between two looks at files of restored volumes, of which most take minutes."""
UNFINISHED = "the rebuild failed, so nobody knows what was lost; bringup factory up goes on with it"
UNREAD = "the factory was not rebuilt, because what it holds could not be read"
UNCOMPARED = "the rebuild ended, and what was lost could not be read"


class DrillReport(Struct, frozen=True, kw_only=True):
    """Report of a drill: sentences about what worked without the factory, what did not, and what was lost; times in UTC seconds.

    `uncompared` says about what nobody knows if it was lost.
    """

    factory: str
    began: float
    ended: float
    rebuilt: bool
    works: tuple[str, ...]
    broken: tuple[str, ...]
    lost: tuple[str, ...]
    uncompared: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Return True if production went on and nothing was lost."""
        return not self.broken and not self.lost


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """Parts that must survive a rebuild: copies (path → names of files), and folders of production (host and folder → digest).

    `restored` maps files that tell of restored volumes to the times at which they were written, 0 for those that are missing.
    `only_live` are sentences about contents that only the live factory has, `uncompared` about what nobody compares.
    """

    copies: Mapping[str, frozenset[str]]
    published: Mapping[str, str]
    restored: Mapping[str, int] = field(default_factory=dict)
    only_live: tuple[str, ...] = ()
    uncompared: tuple[str, ...] = ()


def cut(screen: Screen, source: str) -> int:
    """Cut production off from a factory that stays as it is, and return the exit code. Raises the errors of `cut_off`."""
    path, spec = factory_pipeline.read(source)
    began = time.time()
    trial = production_cut.cut_off(spec, path.parent)
    tried = _tried(spec, began, trial)
    screen.lines(tried.works)
    return _conclude(screen, spec, tried)


def drill(screen: Screen, prepared: PreparedRebuild, options: StartOptions, clock: Clock = RealClock()) -> int:
    """Cut production off, rebuild the factory if production works without it, and return the exit code."""
    spec, folder, began = prepared.spec, prepared.path.parent, time.time()
    trial = production_cut.cut_off(spec, folder)
    tried = _tried(spec, began, trial)
    screen.lines(tried.works)
    if not tried.passed:
        return _conclude(screen, spec, tried)
    with _reported(screen, spec, msgspec.structs.replace(tried, broken=(UNREAD,))):
        contents = factory_rebuild.contents_of(prepared)
        before = partly(holdings(spec, trial, contents), prepared.until)
    rebuild = partial(factory_rebuild.rebuild, screen, prepared, options, contents)

    def look() -> Holdings:
        await_restores(spec, before.restored, clock)
        return holdings(spec, production_cut.look(spec, folder))

    return compare(screen, spec, tried, before, rebuild, look)


def compare(
    screen: Screen,
    spec: FactorySpec,
    tried: DrillReport,
    before: Holdings,
    rebuild: Callable[[], int],
    look: Callable[[], Holdings],
) -> int:
    """Run `rebuild`, report what it lost of `before`, and return the exit code; `look` returns what is there afterwards.

    A rebuild that fails has a report too, because production was cut off for it. What `rebuild` and `look` raise is passed on.
    """
    failed = msgspec.structs.replace(tried, broken=(UNFINISHED,), uncompared=before.uncompared)
    with _reported(screen, spec, failed):
        code = rebuild()
    if code:
        _conclude(screen, spec, failed)
        return code
    with _reported(screen, spec, msgspec.structs.replace(failed, rebuilt=True, broken=(UNCOMPARED,))):
        lost = tuple(losses(before, look()))
    return _conclude(screen, spec, msgspec.structs.replace(failed, rebuilt=True, broken=(), lost=lost))


@contextmanager
def _reported(screen: Screen, spec: FactorySpec, failed: DrillReport) -> Iterator[None]:
    """Conclude a drill by the report `failed`, with the error as its last sentence, if the block raises anything."""
    try:
        yield
    except BaseException as error:
        why = plain_text.line(str(error)) or type(error).__name__
        _conclude(screen, spec, msgspec.structs.replace(failed, broken=(*failed.broken, why)))
        raise


def _tried(spec: FactorySpec, began: float, trial: list[TrialOutcome]) -> DrillReport:
    return DrillReport(
        factory=spec.name,
        began=began,
        ended=time.time(),
        rebuilt=False,
        works=tuple(line for outcome in trial for line in outcome.works),
        broken=tuple(line for outcome in trial for line in outcome.broken),
        lost=(),
    )


def holdings(spec: FactorySpec, trial: list[TrialOutcome], contents: UnplannedContents = UnplannedContents()) -> Holdings:
    """Return what must survive a rebuild as it is now: copies, published folders, and contents of the factory."""
    drill = production_cut.drill_of(spec)
    uncompared = [*contents.uncompared, *(line for outcome in trial for line in outcome.uncompared)]
    if not drill.published:
        uncompared.append("published folders: drill.published of the spec names none")
    if not spec.rebuild.copies:
        uncompared.append("copies: rebuild.copies of the spec names none")
    return Holdings(
        copies={copy.path: frozenset(_files(Path(copy.path))) for copy in spec.rebuild.copies},
        published={f"{outcome.host}:{folder}": digest for outcome in trial for folder, digest in outcome.folders},
        restored=restores(spec),
        only_live=contents.sentences,
        uncompared=tuple(uncompared),
    )


def partly(before: Holdings, until: str) -> Holdings:
    """Return what a drill compares if the factory is built up to stage `until`, all of it if empty: without restored volumes.

    A factory that is built in part has no volumes, so the site cannot restore any.
    """
    if not until:
        return before
    lines = (f"bytes in volume {name}: the factory is built up to {until} alone" for name in before.restored)
    return replace(before, restored={}, uncompared=(*before.uncompared, *lines))


def restores(spec: FactorySpec) -> dict[str, int]:
    """Return volume and file of each `copies[].restored` → when the file was written in ns, 0 if it is missing."""
    files = {
        f"{copy.volume} ({copy.path}/{copy.restored})": Path(copy.path, copy.restored)
        for copy in spec.rebuild.copies
        if copy.restored
    }
    return {name: file.stat().st_mtime_ns if file.is_file() else 0 for name, file in files.items()}


def await_restores(spec: FactorySpec, before: Mapping[str, int], clock: Clock) -> None:
    """Wait until the site has written the files that tell of restored volumes, for `rebuild.restore_timeout` at most."""
    deadline = clock.now() + spec.rebuild.restore_timeout.total_seconds()
    while list(_unrestored(before, restores(spec))) and clock.now() < deadline:
        clock.pause(LOOK_SECONDS, deadline)


def _unrestored(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[str]:
    """Yield the volumes whose file is missing, or as old as it was before the rebuild."""
    return (name for name, written in before.items() if after.get(name, 0) in (0, written))


def _files(path: Path) -> Iterator[str]:
    """Yield the names of the files of a folder, at most as many as a rebuild looks at; of a file its own."""
    if path.is_file():
        yield path.name
        return
    seen = 0
    for folder, _, names in os.walk(path):
        for name in names:
            if (seen := seen + 1) > MOST_FILES:
                return
            yield os.path.relpath(os.path.join(folder, name), path)


def losses(before: Holdings, after: Holdings) -> Iterator[str]:
    """Yield what a rebuild lost: files of copies, published folders that differ, volumes, and contents of the old factory alone."""
    for path, names in before.copies.items():
        if gone := sorted(names - after.copies.get(path, frozenset())):
            yield f"{len(gone)} of {len(names)} files of {path}, first {gone[0]}"
    for place, digest in before.published.items():
        if after.published.get(place) != digest:
            yield f"{place} is not as it was before the rebuild"
    for name in _unrestored(before.restored, after.restored):
        yield f"bytes in volume {name}: the file that tells of their restoration was not written anew"
    yield from before.only_live


def _conclude(screen: Screen, spec: FactorySpec, report: DrillReport) -> int:
    """Print a report, keep it outside of the factory, and return the exit code."""
    folder = Path(spec.rebuild.diagnostics)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(report.began))
    file = folder / f"{spec.name}-drill-{stamp}.json"
    report = msgspec.structs.replace(report, ended=time.time())
    file.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    screen.lines(f"broken: {line}" for line in report.broken)
    screen.lines(f"lost: {line}" for line in report.lost)
    screen.lines(f"not compared: {line}" for line in report.uncompared)
    lost = "its rebuild lost nothing" + (" of what was compared" if report.uncompared else "")
    after = lost if report.rebuilt else "nothing was removed"
    if report.passed:
        screen.lines([f"drill of factory {spec.name}: production works without it, and {after}"])
    else:
        removed = "its rebuild did not end" if UNFINISHED in report.broken else "nothing was removed"
        screen.lines([f"drill of factory {spec.name} failed: {'see what was lost' if report.rebuilt else removed}"])
    screen.lines([f"report {file}"])
    return ExitCode.OK if report.passed else ExitCode.GATE_FAILED
