"""The command group `bringup stack`: software stacks."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import completion, output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.options import Output
from workflows.cli.output import Format
from workflows.cli.stacks import release_commands, stack_build_commands

Spec = Annotated[str, typer.Argument(metavar="STACK", help="Stack spec.", autocompletion=completion.specs)]
Source = Annotated[
    str,
    typer.Argument(metavar="STACK|LOCK", help="A stack spec with a lock, or a spack.lock.", autocompletion=completion.locks),
]
Cache = Annotated[Path | None, typer.Option("--cache", help="Folder of the build cache; what it holds is not built.")]
Durations = Annotated[
    Path | None,
    typer.Option("--durations", metavar="FILE", help="JSON object of seconds by package name or hash."),
]
UpdateSlots = Annotated[
    list[int] | None,
    typer.Option("--slots", min=1, max=100_000, help="Builds at a time; repeat for more. Default: builds_at_once."),
]
Slots = Annotated[
    list[int] | None,
    typer.Option("--slots", min=1, max=100_000, help="Builds at a time; repeat for more. Default: 4, 16 and 64."),
]


class PlanFormat(StrEnum):
    """Forms of a stack's plan: those of all commands, the tree of packages, and Graphviz' language."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    TREE = "tree"
    DOT = "dot"


PlanOutput = Annotated[PlanFormat, typer.Option("--output", "-o", help="Form of the output.")]


def register(app: typer.Typer) -> None:
    """Add the group `stack` with all its commands to the application."""
    stack = typer.Typer(no_args_is_help=True, cls=SectionedGroup)
    stack.command(name="lock")(lock)
    stack.command(name="update")(update)
    stack.command(name="plan")(plan)
    stack_build_commands.register_build(stack)
    release_commands.register(stack)
    stack_build_commands.register_from_git(stack)
    app.add_typer(stack, name="stack", help="Lock, plan, build, publish and roll back software stacks (Spack, EasyBuild).")


def lock(
    source: Spec = "stack.yaml",
    write: Annotated[bool, typer.Option("--write/--no-write", help="Write the lock; else only tell what would change.")] = True,
) -> int:
    """Resolve a stack with EasyBuild or Spack, write its lock, and tell what changes.

    Easyconfigs and package repositories are Python, which EasyBuild and Spack execute on this machine as you.
    """
    from workflows.app.stacks import stack_locks

    made = stack_locks.make(source)
    output.lines(change.line for change in made.changes)
    if not made.changes:
        output.lines([f"{made.path}: unchanged, {made.packages} packages"])
        return ExitCode.OK
    if write:
        made.write()
    output.lines([f"{made.path}: {len(made.changes)} of {made.packages} packages {'locked' if write else 'would change'}"])
    return ExitCode.OK


def update(
    source: Spec = "stack.yaml",
    write: Annotated[bool, typer.Option("--write", help="Write the newer lock.")] = False,
    cache: Cache = None,
    durations: Durations = None,
    slots: UpdateSlots = None,
    form: Output = Format.TABLE,
) -> int:
    """Show what a newer lock would change, before anything is built: packages, which must be built, and how long that takes.

    Easyconfigs and package repositories are Python, which EasyBuild and Spack execute on this machine as you.
    """
    from workflows.app.stacks import stack_updates

    newer = stack_updates.newer(source, cache, durations, slots or ())
    is_written = write and bool(newer.made.changes)
    if is_written:
        newer.made.write()
    if form is not Format.TABLE:
        output.data(newer.values(written=is_written), form)
        return ExitCode.OK
    if newer.made.changes and not newer.made.is_first:
        output.table(("package", "now", "then", "why", "result", "time"), newer.rows())
    output.lines(newer.sentences())
    return ExitCode.OK


def plan(
    source: Source = "stack.yaml",
    cache: Cache = None,
    durations: Durations = None,
    slots: Slots = None,
    form: PlanOutput = PlanFormat.TABLE,
) -> int:
    """Print what a build of a locked stack would do: builds in their order, what is cached, critical path and duration."""
    from workflows.app.stacks import stack_plans

    planned = stack_plans.prepare(source, cache, durations, slots or ())
    match form:
        case PlanFormat.TREE:
            output.lines(stack_plans.tree_lines(planned.plan.graph, planned.plan.builds))
        case PlanFormat.DOT:
            output.lines(stack_plans.dot_lines(planned.plan))
        case PlanFormat.TABLE:
            if rows := planned.rows():
                output.table(("PACKAGE", "HASH", "COMPILER", "CLASS", "TIME", "DEPTH", "PATH"), rows)
            output.prose(planned.sentences())
        case PlanFormat.JSON | PlanFormat.YAML:
            output.data(planned.values(), Format(form.value))
    return ExitCode.OK
