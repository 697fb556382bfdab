"""Render a step that runs as a graph: inner DAG templates whose tasks all call one container template, each with its own shard.

Argo's CRDs admit at most 200 tasks in a DAG (`maxItems` of `spec.templates[].dag.tasks` in the full CRDs of Argo Workflows 4.1.2).
A larger graph comes in groups: one DAG template for each, called by a DAG of the groups.
"""

from collections.abc import Iterable, Mapping

from hera.workflows import DAG, Container, Parameter, Task

from workflows.render import names
from workflows.stages.stage import GraphTask, Stage, Step

MOST_TASKS = 200
"""Largest number of tasks of one DAG template."""
SHARD = "shard"
"""Name of the container template's input parameter."""
_ENDED = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")


class GraphError(ValueError):
    """Exception: a graph cannot be rendered; the message names the task. It is always a bug of bringup."""


def templates(stage: Stage, step: Step, container: Container) -> str:
    """Add the DAG templates of a step's graph to the open WorkflowTemplate, and return the name of the one to call.

    The stage's parallelism bounds the pods of the only group. Pods of several groups are bounded by `parallelism_of_workflow`,
    because Argo counts only pods that a template starts itself.
    """
    members, before = _groups(step)
    name = graph_template(str(container.name))
    if len(members) == 1:
        _group_dag(name, next(iter(members.values())), container, stage.parallelism)
        return name
    for group, tasks in members.items():
        _group_dag(group_template(str(container.name), group), tasks, container, 0)
    with DAG(name=name, fail_fast=False):
        for group in members:
            depends = " && ".join(ended_condition(_group_name(earlier)) for earlier in sorted(before[group]))
            Task(name=_group_name(group), template=group_template(str(container.name), group), depends=depends or None)
    return name


def parallelism_of_workflow(stages: Iterable[Stage]) -> int | None:
    """Return the largest number of pods of a whole run, for plans with a graph of several groups; None if there is no limit."""
    limits = [stage.parallelism for stage in stages for step in stage.steps if len({task.group for task in step.graph}) > 1]
    return min((limit for limit in limits if limit), default=None)


def graph_template(container: str) -> str:
    """Return the name of the DAG template of a whole graph, from the name of its container template."""
    return f"{container}{names.GRAPH}"


def group_template(container: str, group: int) -> str:
    """Return the name of the DAG template of one of several groups."""
    return f"{graph_template(container)}-{group}"


def ended_condition(name: str) -> str:
    """Return the `depends` condition that a task has ended, in any phase."""
    return "(" + " || ".join(f"{name}.{phase}" for phase in _ENDED) + ")"


def _group_name(group: int) -> str:
    return f"group-{group}"


def _group_dag(name: str, tasks: Iterable[GraphTask], container: Container, parallelism: int) -> None:
    listed = list(tasks)
    members = {task.name for task in listed}
    # independent tasks go on after a failure
    with DAG(name=name, fail_fast=False, parallelism=parallelism or None):
        for task in listed:
            Task(
                name=task.name,
                template=str(container.name),
                # half as long as `depends`, and with the same meaning: all of them succeeded
                dependencies=[earlier for earlier in task.after if earlier in members] or None,
                arguments=[Parameter(name=SHARD, value=str(task.shard))],
            )


def _groups(step: Step) -> tuple[Mapping[int, list[GraphTask]], Mapping[int, set[int]]]:
    """Return the tasks of each group, and the groups for which each group waits. Raises GraphError for what cannot be rendered."""
    members, before, seen = dict[int, list[GraphTask]](), dict[int, set[int]](), dict[str, int]()
    for task in step.graph:
        members.setdefault(task.group, []).append(task)
        waits = before.setdefault(task.group, set())
        if task.name in seen:
            raise GraphError(f"task {task.name} is in the graph of {step.name} twice")
        for earlier in task.after:
            if earlier not in seen:
                raise GraphError(f"task {task.name} of {step.name} waits for {earlier}, which is not listed before it")
            if seen[earlier] > task.group:
                raise GraphError(f"task {task.name} of {step.name} waits for {earlier} of a later group")
            waits |= {seen[earlier]} - {task.group}
        seen[task.name] = task.group
    for group, tasks in members.items():
        if len(tasks) > MOST_TASKS:
            raise GraphError(f"group {group} of {step.name} has {len(tasks)} tasks, Argo admits {MOST_TASKS}")
    return members, before
