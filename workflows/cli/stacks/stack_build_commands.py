"""The command `bringup stack build`: a stack's lock becomes a published, tested version."""

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.app.run_options import LOCAL, Wish
from workflows.cli import completion, output
from workflows.cli.options import RunOptions, placed


@dataclass(frozen=True, kw_only=True)
class StackBuildOptions(RunOptions):
    """Options of `stack build`: those of every run, and the image of the pods that build on Argo."""

    builder: Annotated[str, typer.Option("--builder-image", help="The image of pods that build, with argo; default: builder.")] = ""


def register_build(stack: typer.Typer) -> None:
    """Add the command `build` to the group."""
    stack.command(name="build")(placed(build, StackBuildOptions))


def build(
    spec: Annotated[str, typer.Argument(metavar="STACK", help="Stack spec.", autocompletion=completion.specs)] = "stack.yaml",
    until: Annotated[str, typer.Option("--until", help="Up to and with this stage.")] = "",
    again: Annotated[
        bool, typer.Option("--again", help="Build even if nothing changed, or if a rollback left this version.")
    ] = False,
    at_once: Annotated[
        int, typer.Option("--jobs-at-once", min=0, max=1000, help="Packages that are built at once; default: builds_at_once.")
    ] = 0,
    supersede: Annotated[bool, typer.Option("--supersede", help="End builds of the same stack that go on.")] = False,
    *,
    place: StackBuildOptions,
) -> int:
    """Build what the cache lacks, install and test the stack, and publish it. If nothing has changed, write nothing."""
    from workflows.app.stacks import stack_builds

    prepared = stack_builds.prepare(spec, place, Wish(until=until, again=again, supersede=supersede), at_once)
    if prepared.unchanged:
        output.lines([prepared.unchanged])
        if place.junit is None:
            return ExitCode.OK
        from workflows.app.runs import run_reports

        return run_reports.keep_nothing_changed(output, place.junit, prepared.loaded.name, prepared.unchanged, "stack")
    from workflows.app.runs import run_start

    options = place if place.engine == LOCAL else replace(place, builder=place.builder or prepared.loaded.builder)
    return run_start.start(output, spec, options, prepared.wish, prepared.pipeline)
