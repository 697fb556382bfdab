"""The pipelines that commands start: how each reads its spec, what plan it makes of it, and what renders that plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.contract.exit import ExitCode
from steps.contract.operation import BRINGUP as WHOLE
from steps.contract.operation import Operation
from steps.contract.revision import Source

if TYPE_CHECKING:
    from workflows.images.nodes.resolve import Resolved
    from workflows.plan.model import Plan
    from workflows.render.steps import Settings


@dataclass(frozen=True)
class Wish:
    """What a command asks of a run beside its spec."""

    reuse: str = "none"
    only: tuple[str, ...] = ()
    until: str = ""
    operation: Operation = WHOLE
    again: bool = False
    """Publish also what a rollback left."""
    source: Source | None = None
    """Where the spec came from, where its folder is no work tree of Git; else Git is asked."""
    supersede: bool = False
    """End what goes on of the same spec, once nothing but the start of this run is missing."""


@dataclass(frozen=True)
class Pipeline:
    """`read` finds and loads the spec of an argument, `plan` makes a plan of it, `build` renders that to a WorkflowTemplate (whose
    module takes longer to import than what most commands do). `ended` gives what a command ends with after a run of that name and
    exit code.

    A loaded spec has name, owner, revision, approvals, schedule and secrets, whichever pipeline it is for.
    """

    read: Callable[[str], tuple[Path, Any]]
    plan: Callable[[Path, Any, Wish], Plan]
    build: Callable[[Plan, Settings], Any]
    ended: Callable[[str, int], int] = lambda _, code: code


def _read_cluster(spec: str) -> tuple[Path, Any]:
    from workflows.cli.specs import sources

    return sources.read(spec)


def _plan_cluster(_: Path, loaded: Any, wish: Wish) -> Plan:
    from workflows.plan.compiler import compile_plan

    return compile_plan(loaded, only=wish.only, until=wish.until, operation=wish.operation)


def _read_image(spec: str) -> tuple[Path, Any]:
    from workflows.cli.images import specs as image_specs
    from workflows.cli.specs import sources

    path = sources.find_image(spec)
    return path, image_specs.load(path)


def _plan_image(path: Path, loaded: Any, wish: Wish) -> Plan:
    from workflows.cli.images import specs as image_specs
    from workflows.images.nodes import resolve

    return _plan_resolved(path, loaded, wish, resolve.resolve(image_specs.asked(path, loaded)))


def _plan_resolved(path: Path, loaded: Any, wish: Wish, found: Resolved) -> Plan:
    import msgspec

    from workflows.cli.images import recipe_origins, starting
    from workflows.cli.images import specs as image_specs
    from workflows.plan.images import compile_image

    origin = recipe_origins.of(path, image_specs.asked(path, loaded), wish.source)
    recipe = msgspec.structs.replace(found.recipe, origin=origin)
    relock = starting.relock(path, loaded)
    return compile_image(loaded, recipe, found.files, until=wish.until, again=wish.again, relock=relock)


def _build_cluster(plan: Plan, settings: Settings) -> Any:
    from workflows import bringup

    return bringup.build(plan, settings)


def _build_image(plan: Plan, settings: Settings) -> Any:
    from workflows import image

    return image.build(plan, settings)


def _ended_image(run: str, code: int) -> int:
    """A build changes nothing that a second one would find half changed: where it may succeed when tried again, CI is told so."""
    from workflows.cli.runs import trying_again

    return ExitCode.TEMPORARY if code == ExitCode.GATE_FAILED and trying_again.may_pass(run) else code


BRINGUP = Pipeline(_read_cluster, _plan_cluster, _build_cluster)
IMAGE = Pipeline(_read_image, _plan_image, _build_image, _ended_image)


def of_image(path: Path, loaded: Any, found: Resolved) -> Pipeline:
    """That of an image whose spec was read and whose recipe was resolved already: what was checked is what is planned."""

    def plan(path: Path, loaded: Any, wish: Wish) -> Plan:
        return _plan_resolved(path, loaded, wish, found)

    return replace(IMAGE, read=lambda _: (path, loaded), plan=plan)
