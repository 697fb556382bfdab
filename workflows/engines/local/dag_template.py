"""Execute a DAG template: which tasks may start, which are skipped or omitted, and which phase the targets give the DAG."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from workflows.engines.local.calls import execute
from workflows.engines.local.fanout import branches, resolve
from workflows.engines.local.hooks import exit_hook_runs, hooks_open
from workflows.engines.local.model import DagShape, TaskModel, TemplateCall, TemplateModel
from workflows.engines.local.run_state import (
    COMPLETED,
    ERROR,
    FAILED,
    OMITTED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    CallOptions,
    FanOutBranch,
    RunNode,
)
from workflows.engines.local.scopes import dag_scope, task_scope, template_outputs
from workflows.engines.local.working_run import CallError, WorkingRun
from workflows.render.grammar.when import WhenError, should_execute

_RESULT_OF = {SUCCEEDED: "Succeeded", FAILED: "Failed", ERROR: "Errored", SKIPPED: "Skipped", OMITTED: "Omitted"}


@dataclass(slots=True)
class _Pass:
    """One walk over a DAG's tasks. `held` becomes true if a limit, a hook or an open node keeps the DAG from ending."""

    run: WorkingRun
    path: str
    template: TemplateModel
    shape: DagShape
    options: CallOptions
    tasks: dict[str, TaskModel]  # with the DAG's inputs substituted
    held: bool = False

    def node(self, name: str) -> RunNode | None:
        return self.run.nodes.get(f"{self.path}.{name}")


def execute_dag(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode:
    """Start or continue a DAG's tasks as far as is possible now, and return the DAG's node."""
    assert template.shape is not None
    if path not in run.nodes:
        run.create(path, "DAG", RUNNING, call, options, template=template)
    here = _Pass(run, path, template, template.shape, options, {task.name: task for task in template.tasks})
    moves_before = -1
    # visit the tasks in manifest order until nothing changes, since a task may be listed before one that it depends on
    while run.moves != moves_before:
        moves_before, here.held = run.moves, False
        for name in here.shape.needed:
            _visit(here, here.tasks[name])
    for name in here.shape.targets:
        target = here.node(name)
        # raises CallError for an aggregate that is not JSON: it breaks the whole DAG, not only the target
        if target is not None and target.type == "Skipped" and target.phase == ERROR:
            task_scope(run, path, template, here.tasks[name])
    phase = RUNNING if here.held else assess(run, path, template, options.on_exit)
    if phase == RUNNING:
        return run.nodes[path]
    if phase == SUCCEEDED and template.outputs:
        run.set_outputs(path, template_outputs(template, dag_scope(run, path, template)))
    ends = [end for name in here.shape.targets if (node := here.node(name)) for end in outbound(run, node)]
    return run.mark(path, phase, outbound=tuple(ends))


def _visit(here: _Pass, task: TaskModel) -> None:
    node = here.node(task.name)
    if node is not None and node.fulfilled:
        if task.exit_hook is not None:
            _run_exit_hook(here, task, node, [here.run.nodes[f"{here.path}.{branch.name}"] for branch in node.branches])
        return
    if node is not None:
        _continue(here, task, node)
        return
    if task.depends is not None:
        ready = _may_start(here, task)
        if ready is None:
            return
        if not ready:
            _skip(here, task, task.name, OMITTED, "omitted: depends condition not met")
            return
    if _only_room_decides(task) and not here.run.has_room(here.path):
        here.held = True  # before its texts are substituted: a graph may have hundreds of ready tasks at each event
        return
    _begin(here, task)


def _only_room_decides(task: TaskModel) -> bool:
    """Return True for a single call with literal arguments and no `when`, which nothing else can keep from starting."""
    literal = all("{{" not in (item.value or "") for item in task.arguments)
    return literal and not task.when and not task.expands


def _may_start(here: _Pass, task: TaskModel) -> bool | None:
    """Return True or False for what the task's `depends` gives, or None while a task that it names has not ended."""
    assert task.depends is not None
    results: dict[str, frozenset[str]] = {}
    for name in task.depends.tasks:
        node = here.node(name)
        # Argo evaluates `depends` only after the hooks of all named tasks have ended
        if node is None or not node.fulfilled or not node.synced or hooks_open(here.run, node):
            return None
        task_results = {_RESULT_OF[node.phase]}
        if node.type == "TaskGroup":
            phases = [here.run.nodes[path].phase for path in node.children if not here.run.nodes[path].hooked]
            task_results |= {"AnySucceeded"} if SUCCEEDED in phases else set()
            task_results |= {"AllFailed"} if phases and set(phases) == {FAILED} else set()
        results[name] = frozenset(task_results)
    return task.depends.holds(results)


def _options(here: _Pass, task: TaskModel, name: str, group: str | None = None) -> CallOptions:
    return CallOptions(here.path, group or here.path, (("tasks.name", name),), task.name, here.options.on_exit)


def _connect(here: _Pass, task: TaskModel, path: str, group: str | None = None) -> None:
    parents = here.shape.dependencies[task.name] if group is None else ()
    if not parents:
        here.run.connect(group or here.path, path)
    for parent in parents:
        node = here.node(parent)
        if node is not None:
            for end in outbound(here.run, node):
                here.run.connect(end, path)


def _begin(here: _Pass, task: TaskModel) -> None:
    try:
        scope = {**here.run.globals(), **task_scope(here.run, here.path, here.template, task)}
        resolved = resolve(task, scope)
        calls = branches(resolved, scope)
    except CallError as err:
        _skip(here, task, task.name, ERROR, str(err))
        return
    path = f"{here.path}.{task.name}"
    if not task.expands:
        _branch(here, task, calls[0], None)
    elif not calls:
        _skip(here, task, task.name, SKIPPED, "Skipped, empty params")
    else:
        here.run.create(path, "TaskGroup", RUNNING, task.call, _options(here, task, task.name))
        here.run.change(path, branches=tuple(calls))
        _connect(here, task, path)
        _continue(here, task, here.run.nodes[path])


def _continue(here: _Pass, task: TaskModel, node: RunNode) -> None:
    """Continue an open task: its single call, or each branch of a fan-out."""
    if node.type == "TaskGroup":
        for branch in node.branches:
            if not _branch(here, task, branch, node.path):
                break
        _close_group(here, node.path)
    else:
        _branch(here, task, FanOutBranch(task.name, (), ""), None)
    continued = here.node(task.name)
    if continued is None or not continued.fulfilled:
        here.held = True


def _branch(here: _Pass, task: TaskModel, branch: FanOutBranch, group: str | None) -> bool:
    """Start or continue one call; return False if a limit keeps it from starting, so that later branches must wait as well."""
    path = f"{here.path}.{branch.name}"
    node = here.run.nodes.get(path)
    if node is None:
        try:
            proceed = should_execute(branch.when)
        except WhenError as err:
            _skip(here, task, branch.name, ERROR, str(err), group)
            return True
        if not proceed:
            _skip(here, task, branch.name, SKIPPED, f"when '{branch.when}' evaluated false", group)
            return True
        node = _call(here, task, branch, group)
        if node is None:
            here.held = True
            return False
        _connect(here, task, node.path, group)
    elif not node.fulfilled and node.type not in ("Pod", "Suspend") and here.run.is_due(path):  # only events change those two
        node = _call(here, task, branch, group) or node
    if not node.fulfilled:
        here.held = True
    else:
        _run_exit_hook(here, task, node, [])
    return True


def _call(here: _Pass, task: TaskModel, branch: FanOutBranch, group: str | None) -> RunNode | None:
    path = f"{here.path}.{branch.name}"
    options = _options(here, task, branch.name, group)
    try:
        return execute(here.run, path, task.call, here.template.scope, branch.arguments, options)
    except CallError as err:
        return here.run.mark(path, ERROR, f"task '{path}' errored: {err}")


def _skip(here: _Pass, task: TaskModel, name: str, phase: str, message: str, group: str | None = None) -> None:
    path = f"{here.path}.{name}"
    here.run.create(path, "Skipped", phase, task.call, _options(here, task, name, group), message)
    _connect(here, task, path, group)


def _close_group(here: _Pass, path: str) -> None:
    group = here.run.nodes[path]
    phase = SUCCEEDED
    for branch in group.branches:
        node = here.run.nodes.get(f"{here.path}.{branch.name}")
        if node is None or not node.fulfilled:
            return
        phase = node.phase if node.unsuccessful else phase
    here.run.mark(path, phase)


def _run_exit_hook(here: _Pass, task: TaskModel, node: RunNode, members: list[RunNode]) -> None:
    if task.exit_hook is None:
        return
    for each in members or [node]:
        if each.phase in COMPLETED and exit_hook_runs(
            here.run,
            each,
            task.exit_hook,
            here.template.scope,
            "tasks",
            task.name,
            lambda: dag_scope(here.run, here.path, here.template),
        ):
            here.held = True


def outbound(run: WorkingRun, node: RunNode) -> list[str]:
    """Return the nodes that the next task follows: a pod itself, a group's members, the last attempt, or the ends of a DAG."""
    if node.type == "TaskGroup":
        return [end for path in node.children for end in outbound(run, run.nodes[path])] or [node.path]
    if node.type == "Retry":
        return [node.children[-1]] if node.children else []
    if node.type in ("DAG", "Steps"):
        return [end for path in node.outbound for end in outbound(run, run.nodes[path])]
    return [node.path]


def assess(run: WorkingRun, path: str, template: TemplateModel, on_exit: bool) -> str:
    """Return the phase of a DAG, computed from the phases of the nodes below it; Running if one of these is open.

    An omitted target inherits the phase of its branch; a failure outweighs a success.
    """
    if run.shutdown and not on_exit:
        return RUNNING if any(node.boundary == path and not node.fulfilled for node in run.nodes.values()) else FAILED
    reached: dict[str, str] = {}
    queue = deque((child, SUCCEEDED) for child in run.nodes[path].children)
    # a node can be reached by several branches with different phases, so the pair is what must not repeat
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


def _below(run: WorkingRun, node: RunNode) -> list[str]:
    """Return the nodes that follow a node when a DAG is assessed; for a Retry node these are the children of its attempts."""
    if node.type != "Retry":
        return list(node.children)
    paths: list[str] = []
    for path in reversed(node.children):
        child = run.nodes[path]
        paths += [path] if child.hooked else list(child.children)
    return paths


def _verdict(path: str, template: TemplateModel, reached: dict[str, str]) -> str:
    assert template.shape is not None
    result = SUCCEEDED
    for name in template.shape.targets:
        phase = reached.get(f"{path}.{name}")
        if phase is None:
            result = RUNNING
            if not template.fail_fast:  # then a failure counts only once all targets have ended
                break
        elif phase in (FAILED, ERROR):
            if phase in template.shape.tasks[name].continue_on:
                continue
            result = phase
            if template.fail_fast:
                break
    return result
