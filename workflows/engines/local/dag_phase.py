"""The phase of a DAG from the phases below it, and the nodes on which the next task hangs."""

from __future__ import annotations

from collections import deque

from workflows.engines.local.model import Template
from workflows.engines.local.run import Run
from workflows.engines.local.state import COMPLETED, ERROR, FAILED, RUNNING, SUCCEEDED, Node


def outbound(run: Run, node: Node) -> list[str]:
    """The nodes that the next task hangs on: a pod itself, the members of a group, the last attempt, the ends of a DAG."""
    if node.type == "TaskGroup":
        return [end for path in node.children for end in outbound(run, run.nodes[path])] or [node.path]
    if node.type == "Retry":
        return [node.children[-1]] if node.children else []
    if node.type in ("DAG", "Steps"):
        return [end for path in node.outbound for end in outbound(run, run.nodes[path])]
    return [node.path]


def assess(run: Run, path: str, template: Template, on_exit: bool) -> str:
    """The phase from the targets; an omitted one inherits from its branch, failures outweigh successes."""
    if run.shutdown and not on_exit:
        return RUNNING if _has_open(run, path) else FAILED
    reached: dict[str, str] = {}
    queue = deque((child, SUCCEEDED) for child in run.nodes[path].children)
    seen = set(queue)
    while queue:
        reached_path, branch = queue.popleft()
        node = run.nodes[reached_path]
        if not node.fulfilled:
            return RUNNING
        phase = node.phase if node.phase in COMPLETED else branch
        if reached.get(reached_path) not in (FAILED, ERROR):
            reached[reached_path] = phase
        for child in _below(run, node):
            if (child, phase) not in seen:
                seen.add((child, phase))
                queue.append((child, phase))
    return _verdict(path, template, reached)


def _below(run: Run, node: Node) -> list[str]:
    """Where the walk goes on; the attempts of a Retry node do not count one by one."""
    if node.type != "Retry":
        return list(node.children)
    found: list[str] = []
    for path in reversed(node.children):
        child = run.nodes[path]
        found += [path] if child.hooked else list(child.children)
    return found


def _verdict(path: str, template: Template, reached: dict[str, str]) -> str:
    assert template.shape is not None
    result = SUCCEEDED
    for name in template.shape.targets:
        phase = reached.get(f"{path}.{name}")
        if phase is None:
            result = RUNNING
            if not template.fail_fast:
                break
        elif phase in (FAILED, ERROR):
            if phase in template.shape.tasks[name].continue_on:
                continue
            result = phase
            if template.fail_fast:
                break
    return result


def _has_open(run: Run, path: str) -> bool:
    return any(node.boundary == path and not node.fulfilled for node in run.nodes.values())
