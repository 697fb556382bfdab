"""The pipelines that commands start: each reads its spec, plans it, and renders that plan."""

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
    from workflows.nodeimage.recipe_resolution import Resolved
    from workflows.plan.model import Plan
    from workflows.render.steps import Settings


@dataclass(frozen=True)
class Wish:
    """The options of a run beside its spec."""

    reuse: str = "none"
    only: tuple[str, ...] = ()
    until: str = ""
    operation: Operation = WHOLE
    again: bool = False
    """Publish even a version that was rolled back."""
    source: Source | None = None
    """The spec's Git source if its folder is no work tree; otherwise Git is asked."""
    supersede: bool = False
    """End unfinished runs of the same spec, once nothing but the start of this run is missing."""


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's functions.

    `read` finds and loads the spec of an argument, `plan` plans it, `build` renders the plan to a WorkflowTemplate. `ended` maps a
    run's name and exit code to the command's exit code. `build` imports its module when it is called, because that takes longer
    than most commands.

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
    from workflows.nodeimage import recipe_resolution

    return _plan_resolved(path, loaded, wish, recipe_resolution.resolve(image_specs.asked(path, loaded)))


def _plan_resolved(path: Path, loaded: Any, wish: Wish, found: Resolved) -> Plan:
    import msgspec

    from workflows.cli.images import recipe_origins, starting
    from workflows.cli.images import specs as image_specs
    from workflows.nodeimage.image_plan import compile_image

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
    """Return exit code 75 for a failed build that may pass when retried: a build leaves nothing half changed."""
    from workflows.cli.runs import trying_again

    return ExitCode.TEMPORARY if code == ExitCode.GATE_FAILED and trying_again.may_pass(run) else code


BRINGUP = Pipeline(_read_cluster, _plan_cluster, _build_cluster)
IMAGE = Pipeline(_read_image, _plan_image, _build_image, _ended_image)


def of_image(path: Path, loaded: Any, found: Resolved) -> Pipeline:
    """Return the pipeline of an image whose spec was read and whose recipe was resolved already, so that both are not read
    twice.
    """

    def plan(path: Path, loaded: Any, wish: Wish) -> Plan:
        return _plan_resolved(path, loaded, wish, found)

    return replace(IMAGE, read=lambda _: (path, loaded), plan=plan)
