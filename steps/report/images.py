"""Records of an image build → what the report shows: files, layers, packages against the published ones, tests, boots."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

import msgspec
from msgspec import Struct

from steps.contract.evidence import Evidence, seen
from steps.contract.image.booting import Boot
from steps.contract.image.manifest import Part
from steps.contract.image.testing import SANDBOX_SECONDS, Result
from steps.contract.stages.image_assemble import Assembled
from steps.contract.stages.image_boot import Booted
from steps.contract.stages.image_layers import Built
from steps.contract.stages.image_lock import Archive
from steps.contract.stages.image_publish import Published
from steps.contract.stages.image_sandbox import Sandboxed
from steps.contract.stages.image_standing import Standing
from steps.contract.verdict import Status

T = TypeVar("T")
_SANDBOX: Final = "sandbox"
CONSOLE_LINES = 25
"""Lines of a console that are shown of a boot that went wrong."""


class Layer(Struct, frozen=True, kw_only=True):
    """One layer: bytes and entries that it adds, how long it took, whether it was found in the cache."""

    name: str
    key: str
    size: int
    files: int
    seconds: float
    cached: bool


class Test(Struct, frozen=True, kw_only=True):
    """One test and where it ran: `sandbox`, or the machine that booted."""

    name: str
    where: str
    outcome: str
    seconds: float
    output: str = ""

    @property
    def over(self) -> str:
        """Says where it took longer in the sandbox than a test is to take; a booted test machine is emulated."""
        return f"over {SANDBOX_SECONDS:g} s" if self.where == _SANDBOX and self.seconds > SANDBOX_SECONDS else ""


class Mark(Struct, frozen=True, kw_only=True):
    """One moment of a boot: seconds after the machine was started, and what was asked for or told then."""

    at: float
    what: str


class Machine(Struct, frozen=True, kw_only=True):
    """One test machine. `console` is there for a boot that did not pass."""

    name: str
    firmware: str
    seconds: float
    ended: str
    marks: tuple[Mark, ...] = ()
    stopped_at: str = ""
    console: tuple[str, ...] = ()


class Image(Struct, frozen=True, kw_only=True):
    """What a run built. `origin` is where its recipe came from, `version` the published one, `before` what was published until
    then; empty where nothing was. `first`: where the recipe of that version came from when it was published."""

    key: str = ""
    origin: str = ""
    first: str = ""
    manifest: str = ""
    version: str = ""
    before: str = ""
    unchanged: bool = False
    packages: int = 0
    fetched: int = 0
    files: tuple[Part, ...] = ()
    layers: tuple[Layer, ...] = ()
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    tests: tuple[Test, ...] = ()
    machines: tuple[Machine, ...] = ()

    @property
    def longest(self) -> float:
        """Seconds of the longest boot, by which their timelines are drawn."""
        return max((one.seconds for one in self.machines), default=0.0)


def image(latest: Sequence[Evidence]) -> Image | None:
    """The image that these records tell of; None of a run that builds none. A record that cannot be read shows nothing."""
    if not any(record.stage.startswith("image_") for record in latest):
        return None
    archive = next(_observed(latest, "image_lock", Archive), None)
    assembled = next(_observed(latest, "image_assemble", Assembled), None)
    published = next(_observed(latest, "image_publish", Published), None)
    standing = next(_observed(latest, "image_standing", Standing), None)
    sandboxed = next(_observed(latest, "image_sandbox", Sandboxed), None)
    boots = [boot for booted in _observed(latest, "image_boot", Booted) for boot in booted.boots]
    made = Image(
        packages=archive.packages if archive else 0,
        fetched=archive.fetched if archive else 0,
        key=assembled.key if assembled else "",
        manifest=assembled.manifest if assembled else "",
        origin=assembled.origin if assembled else "",
        files=assembled.found if assembled else (),
        layers=tuple(_layers(latest)),
        tests=(*_tests(_SANDBOX, sandboxed.results if sandboxed else ()), *(test for boot in boots for test in _of_boot(boot))),
        machines=tuple(_machine(boot, good=boot.name in _passed(latest)) for boot in boots),
    )
    if published is None and standing is not None and standing.is_current:
        return msgspec.structs.replace(made, key=standing.key, version=standing.version, unchanged=True)
    if published is None and standing is not None:
        added, gone, changed = standing.packages_added, standing.packages_removed, standing.packages_changed
        return msgspec.structs.replace(made, before=standing.version, added=added, removed=gone, changed=changed)
    if published is None:
        return made
    return msgspec.structs.replace(
        made,
        manifest=published.manifest or made.manifest,
        version=published.version,
        before=published.before,
        first=published.origin,
        unchanged=published.unchanged,
        added=published.packages_added,
        removed=published.packages_removed,
        changed=published.packages_changed,
    )


def _observed(latest: Iterable[Evidence], stage: str, kind: type[T]) -> Iterator[T]:
    for record in latest:
        if record.stage == stage and (found := seen(record.observation, kind)) is not None:
            yield found


def _layers(latest: Iterable[Evidence]) -> Iterator[Layer]:
    for record in latest:
        if record.stage == "image_layers" and (built := seen(record.observation, Built)) is not None:
            yield Layer(
                name=record.task.removeprefix("layer_"),
                key=built.key,
                size=built.size,
                files=built.files,
                seconds=record.finished - record.started if built.cached else built.seconds,
                cached=built.cached,
            )


def _tests(where: str, results: Iterable[Result]) -> Iterator[Test]:
    for one in results:
        yield Test(name=one.name, where=where, outcome=one.outcome.value, seconds=one.seconds, output=one.output)


def _of_boot(boot: Boot) -> Iterator[Test]:
    yield from _tests(boot.name, boot.report.results if boot.report else ())


def _passed(latest: Iterable[Evidence]) -> set[str]:
    """Names of the machines that the gate of their boot passed."""
    verdicts = (record.verdict for record in latest if record.stage == "image_boot" and record.verdict is not None)
    return {row.node for verdict in verdicts for row in verdict.nodes if row.status is Status.PASS}


def _machine(boot: Boot, *, good: bool) -> Machine:
    return Machine(
        name=boot.name,
        firmware=boot.firmware.value,
        seconds=boot.seconds,
        ended=boot.ended,
        marks=tuple(Mark(at=event.at, what=event.what) for event in boot.events),
        stopped_at=boot.stopped_at,
        console=() if good else boot.console[-CONSOLE_LINES:],
    )
