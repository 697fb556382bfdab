"""Printing of a plan, or of the difference of two plans, in each output form."""

from collections.abc import Sequence

import msgspec
import typer

from steps.contract.operation import BRINGUP, Operation
from workflows.cli import output
from workflows.cli.hosts import quarantining
from workflows.cli.output import Format
from workflows.cli.specs import kinds
from workflows.plan import diff, show
from workflows.plan.model import Plan


def made(source: str, only: Sequence[str], until: str, operation: Operation = BRINGUP) -> Plan:
    """Return the plan of a spec argument. Raises NoSpec, SpecErrors, PlanError; BadParameter for options that do not apply
    to it.
    """
    return kinds.planned(source, only, until, operation)


def show_plan(plan: Plan, form: str) -> None:
    """Print the whole plan."""
    if form == "tree":
        output.lines([*show.tree(plan), *show.warnings(plan)])
    elif form == "table":
        target = "" if show.is_targetless(plan) else f", target {plan.target_uid or 'not known yet'}"
        identity = f"{plan.name}, owner {plan.owner}, revision {plan.revision}{target}"
        others = "; the other hosts are only read" if any(host.untouched for host in plan.hosts) else ""
        operation_lines = [f"operation {operation_text}{others}"] if (operation_text := show.operation(plan)) else []
        output.lines([f"plan {plan.digest}", identity, *operation_lines, ""])
        output.table(show.COLUMNS, show.rows(plan))
        output.lines(["", *show.releases(plan)] if plan.releases else [])
        output.lines(["", *text_lines] if (text_lines := show.started(plan)) else [])
        output.lines(["", *text_lines] if (text_lines := show.warnings(plan)) else [])
        output.lines(quarantining.reminder(plan.name, (host.name for host in plan.hosts)))
    else:
        output.data(show.to_data(plan) | show.starts(plan) | {"issues": show.issues(plan)}, Format(form))


def show_difference(before: Plan, after: Plan, form: str) -> None:
    """Print the differences: lines with old and new value for a person, every value in full for scripts.

    Raises BadParameter for plans of two pipelines.
    """
    if show.is_targetless(before) != show.is_targetless(after):
        raise typer.BadParameter(f"{before.name} and {after.name} are a cluster and an image: they have nothing to compare")
    if form in ("table", "tree"):
        output.lines(diff.differences(before, after) or ["no difference"])
    else:
        changes = msgspec.to_builtins(diff.changes(before, after))
        output.data({"before": before.digest, "after": after.digest, "differences": changes}, Format(form))
