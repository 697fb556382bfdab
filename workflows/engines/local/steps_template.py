"""Execute a steps template: its groups run one after the other, the steps of a group at the same time."""

from __future__ import annotations

from dataclasses import dataclass

from workflows.engines.local.calls import execute
from workflows.engines.local.dag_template import outbound
from workflows.engines.local.fanout import branches, resolve
from workflows.engines.local.hooks import exit_hook_runs
from workflows.engines.local.model import TaskModel, TemplateCall, TemplateModel
from workflows.engines.local.run_state import (
    COMPLETED,
    ERROR,
    FAILED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    CallOptions,
    FanOutBranch,
    RunNode,
)
from workflows.engines.local.scopes import MutableScope, add_absent, add_node, aggregate, input_scope, template_outputs
from workflows.engines.local.working_run import CallError, WorkingRun
from workflows.render.grammar.gotext import fnv1a
from workflows.render.grammar.when import WhenError, should_execute


@dataclass(slots=True)
class _StepGroup:
    run: WorkingRun
    path: str
    boundary: str
    template: TemplateModel
    tasks: tuple[TaskModel, ...]
    on_exit: bool
    scope: MutableScope


def execute_steps(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode:
    """Start or continue the groups of a steps template as far as is possible now, and return the template's node."""
    if path not in run.nodes:
        run.create(path, "Steps", RUNNING, call, options, template=template)
    scope = input_scope(template)
    for index, tasks in enumerate(template.steps):
        group = _StepGroup(run, f"{path}[{index}]", path, template, tasks, options.on_exit, scope)
        _ensure(group, index)
        node = run.nodes[group.path]
        if not node.fulfilled:
            node = _execute_group(group)
        if not node.fulfilled:
            return run.nodes[path]
        if node.unsuccessful:
            return run.mark(path, FAILED, node.message, outbound=_ends(run, node))
        _extend(group)
    if template.outputs:
        run.set_outputs(path, template_outputs(template, scope))
    last = run.nodes.get(f"{path}[{len(template.steps) - 1}]")
    return run.mark(path, SUCCEEDED, outbound=_ends(run, last) if last else ())


def _ensure(group: _StepGroup, index: int) -> None:
    run = group.run
    if group.path in run.nodes:
        return
    run.create(group.path, "StepGroup", RUNNING, None, CallOptions(group.boundary, group.boundary, on_exit=group.on_exit))
    if index == 0:
        run.connect(group.boundary, group.path)
        return
    previous_group = run.nodes[f"{group.boundary}[{index - 1}]"]
    for end in _ends(run, previous_group) or (previous_group.path,):
        run.connect(end, group.path)


def _ends(run: WorkingRun, group: RunNode) -> tuple[str, ...]:
    return tuple(end for path in group.children for end in outbound(run, run.nodes[path]))


def _extend(group: _StepGroup) -> None:
    """Add the outputs of a finished group to the variables that the next groups may refer to."""
    for task in group.tasks:
        node = group.run.nodes.get(f"{group.path}.{task.name}")
        if node is None:
            members = [member for member in _members(group, task) if member.type != "Skipped"]
            if members:
                aggregate(group.scope, "steps", task.name, members)
            add_node(group.run, group.scope, "steps", task.name, group.run.nodes[group.path])
        else:
            add_node(group.run, group.scope, "steps", task.name, node)
            add_absent(group.scope, "steps", task.name, node, group.run.plan.template(task.call, group.template.scope))


def _members(group: _StepGroup, task: TaskModel) -> list[RunNode]:
    names = [branch.name for branch in group.run.nodes[group.path].branches if branch.name.startswith(f"{task.name}(")]
    return [group.run.nodes[path] for name in names if (path := f"{group.path}.{name}") in group.run.nodes]


def _execute_group(group: _StepGroup) -> RunNode:
    run = group.run
    try:
        planned = _planned(group)
        waits = False
        for task, branch in planned:
            waits = _step(group, task, branch) or waits
    except CallError as err:
        return run.mark(group.path, ERROR, str(err))
    children = [run.nodes[path] for path in run.nodes[group.path].children]
    if waits or not all(child.fulfilled for child in children) or _hooks_run(group, planned):
        return run.nodes[group.path]
    continues = {f"{group.path}.{branch.name}": task.continue_on for task, branch in planned}
    for child in children:
        if child.unsuccessful and child.phase not in continues.get(child.path, frozenset()):
            return run.mark(group.path, FAILED, f"child '{run.plan.name}-{fnv1a(child.path)}' failed")
    return run.mark(group.path, SUCCEEDED)


def _planned(group: _StepGroup) -> list[tuple[TaskModel, FanOutBranch]]:
    """Return the steps of a group with references resolved and fan-outs expanded; this happens once, when the group begins."""
    node = group.run.nodes[group.path]
    if not node.branches:
        scope: MutableScope = {**group.run.globals(), **group.scope}
        all_branches: list[FanOutBranch] = []
        try:
            resolved = [resolve(task, scope) for task in group.tasks]
        except CallError as err:
            raise CallError(f"failed to resolve references: {err}") from None
        for task in resolved:
            expanded = branches(task, scope)
            if not expanded:
                _skip(group, task, task.name, SKIPPED, "Skipped, empty params")
            all_branches += expanded
        node = group.run.change(group.path, branches=tuple(all_branches))
    by_name = {task.name: task for task in group.tasks}
    return [(by_name[branch.name.split("(", 1)[0]], branch) for branch in node.branches]


def _options(group: _StepGroup, task: TaskModel, name: str) -> CallOptions:
    return CallOptions(group.boundary, group.path, (("steps.name", name),), task.name, group.on_exit)


def _skip(group: _StepGroup, task: TaskModel, name: str, phase: str, message: str) -> None:
    path = f"{group.path}.{name}"
    if path not in group.run.nodes:
        group.run.create(path, "Skipped", phase, task.call, _options(group, task, name), message)
        group.run.connect(group.path, path)


def _step(group: _StepGroup, task: TaskModel, branch: FanOutBranch) -> bool:
    """Start or continue one step; return True if a limit keeps it from starting."""
    path = f"{group.path}.{branch.name}"
    node = group.run.nodes.get(path)
    if node is not None and (node.fulfilled or not group.run.is_due(path)):
        return False
    if node is None:
        try:
            proceed = should_execute(branch.when)
        except WhenError as err:
            _skip(group, task, branch.name, ERROR, str(err))
            raise CallError(str(err)) from None
        if not proceed:
            _skip(group, task, branch.name, SKIPPED, f"when '{branch.when}' evaluated false")
            return False
    try:
        node = execute(group.run, path, task.call, group.template.scope, branch.arguments, _options(group, task, branch.name))
    except CallError as err:
        group.run.connect(group.path, path)
        raise CallError(f"step group deemed errored due to child {path} error: {err}") from None
    if node is None:
        return True
    group.run.connect(group.path, path)
    return False


def _hooks_run(group: _StepGroup, planned: list[tuple[TaskModel, FanOutBranch]]) -> bool:
    waiting = False
    for task, branch in planned:
        node = group.run.nodes.get(f"{group.path}.{branch.name}")
        if task.exit_hook is None or node is None or node.phase not in COMPLETED:
            continue
        scope = group.template.scope
        waiting |= exit_hook_runs(group.run, node, task.exit_hook, scope, "steps", task.name, lambda: dict(group.scope))
    return waiting
