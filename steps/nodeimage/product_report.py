"""Section of a run's report about a node image: files, layers, packages against the published version, tests, boots."""

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from steps.contract.runs.evidence import Evidence, read_observation
from steps.contract.verdict import Status
from steps.nodeimage.contract.boot_tests import MachineBoot
from steps.nodeimage.contract.image_manifest import ImageFile
from steps.nodeimage.contract.image_tests import SANDBOX_SECONDS, ImageTestResult
from steps.stages.image_assemble.contract import Assembled
from steps.stages.image_boot.contract import Booted
from steps.stages.image_layers.contract import Built
from steps.stages.image_lock.contract import Archive
from steps.stages.image_publish.contract import Published
from steps.stages.image_sandbox.contract import Sandboxed
from steps.stages.image_status.contract import ID as STATUS_STAGE
from steps.stages.image_status.contract import TASK as STATUS_TASK
from steps.stages.image_status.contract import ImageStatus

T = TypeVar("T")
SECTION: Final = "image"
"""Field of a run's report with what is said about the image."""
_SANDBOX: Final = "sandbox"
CONSOLE_LINES = 25
"""Number of console lines that the report shows for a failed boot."""


class LayerRow(Struct, frozen=True, kw_only=True):
    """One layer in the report: the bytes and entries that it adds, the seconds of its build, and `cached` if it was not built."""

    name: str
    key: str
    size: int
    files: int
    seconds: float
    cached: bool


class ResultRow(Struct, frozen=True, kw_only=True):
    """Result of one test in the report; `where` it ran is `sandbox`, or the name of the machine that booted."""

    name: str
    where: str
    outcome: str
    seconds: float
    output: str = ""

    @property
    def over(self) -> str:
        """Remark if a test took longer in the sandbox than it should; empty for booted machines, because they are emulated."""
        return f"over {SANDBOX_SECONDS:g} s" if self.where == _SANDBOX and self.seconds > SANDBOX_SECONDS else ""


class BootMark(Struct, frozen=True, kw_only=True):
    """One moment on the report's timeline of a boot: `at` seconds after the machine's start came the request or report `what`."""

    at: float
    what: str


class MachineRow(Struct, frozen=True, kw_only=True):
    """One test machine in the report; `console` has its last lines if its boot did not pass."""

    name: str
    firmware: str
    seconds: float
    ended: str
    marks: tuple[BootMark, ...] = ()
    stopped_at: str = ""
    console: tuple[str, ...] = ()


class ImageReport(Struct, frozen=True, kw_only=True):
    """Image that a run built, as the report shows it; made by `details`.

    `origin` is where its recipe came from, `version` the published version, `before` the version published until then (empty:
    none), `first` where the recipe of that version came from when it was published.
    """

    key: str = ""
    origin: str = ""
    first: str = ""
    manifest: str = ""
    version: str = ""
    before: str = ""
    unchanged: bool = False
    packages: int = 0
    fetched: int = 0
    files: tuple[ImageFile, ...] = ()
    layers: tuple[LayerRow, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    tests: tuple[ResultRow, ...] = ()
    machines: tuple[MachineRow, ...] = ()

    @property
    def longest(self) -> float:
        """Seconds of the longest boot, which is the width of all timelines."""
        return max((machine.seconds for machine in self.machines), default=0.0)


def details(latest: Sequence[Evidence]) -> ImageReport | None:
    """Return the report's data about the image that a run built; None for a run that builds none.

    Unreadable records are left out.
    """
    if not any(record.stage.startswith("image_") for record in latest):
        return None
    archive = next(_observed(latest, "image_lock", Archive), None)
    assembled = next(_observed(latest, "image_assemble", Assembled), None)
    published = next(_observed(latest, "image_publish", Published), None)
    status = next(_observed(latest, "image_status", ImageStatus), None)
    sandboxed = next(_observed(latest, "image_sandbox", Sandboxed), None)
    boots = [boot for observed in _observed(latest, "image_boot", Booted) for boot in observed.boots]
    booted = [row for boot in boots for row in _tests(boot.name, boot.report.results if boot.report else ())]
    built = ImageReport(
        packages=archive.packages if archive else 0,
        fetched=archive.fetched if archive else 0,
        key=assembled.key if assembled else "",
        manifest=assembled.manifest if assembled else "",
        origin=assembled.origin if assembled else "",
        files=assembled.found if assembled else (),
        layers=tuple(_layers(latest)),
        tests=(*_tests(_SANDBOX, sandboxed.results if sandboxed else ()), *booted),
        machines=tuple(_machine(boot, good=boot.name in _passed(latest)) for boot in boots),
    )
    if published is None and status is not None and status.is_current:
        return msgspec.structs.replace(built, key=status.key, version=status.version, unchanged=True)
    if published is None and status is not None:
        added, gone, changed = status.packages_added, status.packages_removed, status.packages_changed
        return msgspec.structs.replace(built, before=status.version, added=added, removed=gone, changed=changed)
    if published is None:
        return built
    return msgspec.structs.replace(
        built,
        manifest=published.manifest or built.manifest,
        version=published.version,
        before=published.before,
        first=published.origin,
        unchanged=published.unchanged,
        added=published.packages_added,
        removed=published.packages_removed,
        changed=published.packages_changed,
    )


def nothing_to_do(latest: Iterable[Evidence]) -> str:
    """Return the sentence that this image is published already, for which later stages were skipped; empty for any other run."""
    for record in latest:
        if (record.stage, record.task) == (STATUS_STAGE, STATUS_TASK) and record.verdict is not None and record.verdict.is_pass:
            status = read_observation(record.observation, ImageStatus)
            return status.sentence if status is not None and status.is_current else ""
    return ""


def untested(_: Iterable[Evidence]) -> tuple[tuple[str, str, str], ...]:
    """Return nothing: each test that does not run fails its gate."""
    return ()


def template() -> str:
    """Return the Jinja template of the report's section about an image; it renders the result of `details`."""
    return resources.files("steps.nodeimage").joinpath("report.html.j2").read_text()


def _observed(latest: Iterable[Evidence], stage: str, kind: type[T]) -> Iterator[T]:
    for record in latest:
        if record.stage == stage and (observation := read_observation(record.observation, kind)) is not None:
            yield observation


def _layers(latest: Iterable[Evidence]) -> Iterator[LayerRow]:
    for record in latest:
        if record.stage == "image_layers" and (built := read_observation(record.observation, Built)) is not None:
            yield LayerRow(
                name=record.task.removeprefix("layer_"),
                key=built.key,
                size=built.size,
                files=built.files,
                seconds=record.finished - record.started if built.cached else built.seconds,
                cached=built.cached,
            )


def _tests(where: str, results: Iterable[ImageTestResult]) -> Iterator[ResultRow]:
    for test in results:
        yield ResultRow(name=test.name, where=where, outcome=test.outcome.value, seconds=test.seconds, output=test.output)


def _passed(latest: Iterable[Evidence]) -> set[str]:
    """Return the names of the machines whose boot passed its gate."""
    verdicts = (record.verdict for record in latest if record.stage == "image_boot" and record.verdict is not None)
    return {row.node for verdict in verdicts for row in verdict.nodes if row.status is Status.PASS}


def _machine(boot: MachineBoot, *, good: bool) -> MachineRow:
    return MachineRow(
        name=boot.name,
        firmware=boot.firmware.value,
        seconds=boot.seconds,
        ended=boot.ended,
        marks=tuple(BootMark(at=event.at, what=event.what) for event in boot.events),
        stopped_at=boot.stopped_at,
        console=() if good else boot.console[-CONSOLE_LINES:],
    )
