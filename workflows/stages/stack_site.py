"""Input of the builders of stack stages (the stack, its builds as a graph, publish target), and the parts that they share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steps.contract.release_layout import ReleaseTarget
from steps.contract.task import Verb
from steps.softwarestack.contract.stack_input import StackInput
from workflows.stages.stage import Change, ClaimMount, GraphTask, Object, Stage, Step, judge_step, task


@dataclass(frozen=True, kw_only=True)
class StackSite:
    """Everything that decides the build of one software stack: its packages, the builds that are missing, where to publish.

    `files` is the digest of the file with easyconfigs beside the tasks. `graph` has a task for each batch of the stack. `at_once`
    is the largest number of builds at the same time. `again`: publish even a version that was rolled back. `claim` is the
    published folder for pods; None if only machines publish.
    """

    stack: StackInput
    files: str
    place: ReleaseTarget
    graph: tuple[GraphTask, ...] = ()
    at_once: int = 4
    again: bool = False
    claim: ClaimMount | None = None


def part_step(site: StackSite, stage: str, part: str, gate: str, *, deadline: int, **more: Any) -> Step:
    """Return the task in which verb `build` makes one part of a stack; `more` are arguments of the part and fields of `Step`."""
    own: Object = {"part": part, "stack": site.stack.digest, "files": site.files, "gate": gate, **more.pop("arguments", {})}
    made = task(stage, part, Verb.BUILD, deadline=deadline, arguments=own, expectations={"stack": site.stack.digest})
    return Step(task=made, **more)


def cache_secrets(stack: StackInput) -> Object:
    """Return the argument of a part that names the secret files for access to the build cache; none for a cache without any."""
    registry = stack.cache.registry
    names = [name for name in (registry.ca, registry.password) if name] if registry is not None else []
    return {"cache_secrets": names} if names else {}


def stack_stage(
    stage: str,
    title: str,
    gate: str,
    step: Step,
    *,
    changes: tuple[Change, ...] = (),
    rollback: str = "nothing is changed",
    **more: Any,
) -> Stage:
    """Return a stage of the stack pipeline: one task, or a graph of its copies, and a judge without hosts and quorum."""
    check: Object = {"task": step.name, "gate": gate} | ({"records": len(step.graph)} if step.graph else {})
    judge = judge_step(stage, [check], deadline=300, needed=0, members="all")
    return Stage(id=stage, title=title, steps=(step, judge), gates=(gate,), changes=changes, rollback=rollback, **more)
