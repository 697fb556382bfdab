"""A DAG template: which tasks may start, what becomes of those that may not, and the phase that its leaves give it."""

from __future__ import annotations

from dataclasses import dataclass

from workflows.engines.local.calls import execute
from workflows.engines.local.dag_phase import assess, outbound
from workflows.engines.local.fanout import branches, resolve
from workflows.engines.local.hooks import exit_hook_runs, hooks_open
from workflows.engines.local.model import Call, Shape, Task, Template
from workflows.engines.local.run import CallError, Run
from workflows.engines.local.scopes import dag_scope, task_scope, template_outputs
from workflows.engines.local.state import (
    COMPLETED,
    ERROR,
    FAILED,
    OMITTED,
    RUNNING,
    SKIPPED,
    SUCCEEDED,
    Branch,
    Node,
    Options,
)
from workflows.render.grammar.when import WhenError, should_execute

_RESULT_OF = {SUCCEEDED: "Succeeded", FAILED: "Failed", ERROR: "Errored", SKIPPED: "Skipped", OMITTED: "Omitted"}


@dataclass(slots=True)
class _Pass:
    """One sweep over a DAG; `held` says that a limit, a hook or an open node keeps it from being assessed."""

    run: Run
    path: str
    template: Template
    shape: Shape
    options: Options
    tasks: dict[str, Task]  # with the DAG's inputs substituted
    held: bool = False

    def node(self, name: str) -> Node | None:
        return self.run.nodes.get(f"{self.path}.{name}")


def execute_dag(run: Run, path: str, template: Template, call: Call, options: Options) -> Node:
    """Carry a DAG on as far as it goes now."""
    assert template.shape is not None
    if path not in run.nodes:
        run.create(path, "DAG", RUNNING, call, options, template=template)
    here = _Pass(run, path, template, template.shape, options, {task.name: task for task in template.tasks})
    _sweep(here)
    _check_scopes(here)
    phase = RUNNING if here.held else assess(run, path, template, options.on_exit)
    if phase == RUNNING:
        return run.nodes[path]
    if phase == SUCCEEDED and template.outputs:
        run.set_outputs(path, template_outputs(template, dag_scope(run, path, template)))
    ends = [end for name in here.shape.targets if (node := here.node(name)) for end in outbound(run, node)]
    return run.mark(path, phase, outbound=tuple(ends))


def _sweep(here: _Pass) -> None:
    """Visit tasks in manifest order until nothing moves any more (a task may stand before the one it waits for)."""
    while True:
        before = here.run.moves
        here.held = False
        for name in here.shape.needed:
            _visit(here, here.tasks[name])
        if here.run.moves == before:
            return


def _visit(here: _Pass, task: Task) -> None:
    node = here.node(task.name)
    if node is not None and node.fulfilled:
        _run_exit_hook(here, task, node, list(_members(here, node)))
        return
    if node is not None:
        _continue(here, task, node)
        return
    if task.depends is not None:
        ready = _may_start(here, task)
        if ready is None:
            return
        if not ready:
            _make(here, task, OMITTED, "omitted: depends condition not met")
            return
    _begin(here, task)


def _may_start(here: _Pass, task: Task) -> bool | None:
    """None: a dependency is still open."""
    assert task.depends is not None
    results: dict[str, frozenset[str]] = {}
    for name in task.depends.tasks:
        node = here.node(name)
        if node is None or not node.fulfilled or not node.synced or hooks_open(here.run, node):
            return None
        found = {_RESULT_OF[node.phase]}
        if node.type == "TaskGroup":
            phases = [here.run.nodes[path].phase for path in node.children if not here.run.nodes[path].hooked]
            found |= {"AnySucceeded"} if SUCCEEDED in phases else set()
            found |= {"AllFailed"} if phases and set(phases) == {FAILED} else set()
        results[name] = frozenset(found)
    return task.depends.holds(results)


def _make(here: _Pass, task: Task, phase: str, message: str) -> None:
    path = f"{here.path}.{task.name}"
    here.run.create(path, "Skipped", phase, task.call, _options(here, task, task.name), message)
    _connect(here, task, path)


def _options(here: _Pass, task: Task, name: str, group: str | None = None) -> Options:
    return Options(here.path, group or here.path, (("tasks.name", name),), task.name, here.options.on_exit)


def _connect(here: _Pass, task: Task, path: str) -> None:
    parents = here.shape.dependencies[task.name]
    if not parents:
        here.run.connect(here.path, path)
    for parent in parents:
        node = here.node(parent)
        if node is not None:
            for end in outbound(here.run, node):
                here.run.connect(end, path)


def _begin(here: _Pass, task: Task) -> None:
    try:
        scope = {**here.run.globals(), **task_scope(here.run, here.path, here.template, task)}
        resolved = resolve(task, scope)
        found = branches(resolved, scope)
    except CallError as err:
        _make(here, task, ERROR, str(err))
        return
    path = f"{here.path}.{task.name}"
    if not task.expands:
        _branch(here, task, found[0], None)
    elif not found:
        _make(here, task, SKIPPED, "Skipped, empty params")
    else:
        here.run.create(path, "TaskGroup", RUNNING, task.call, _options(here, task, task.name))
        here.run.change(path, branches=tuple(found))
        _connect(here, task, path)
        _continue(here, task, here.run.nodes[path])


def _continue(here: _Pass, task: Task, node: Node) -> None:
    """An open task: its branches one by one, or the one call it is."""
    if node.type == "TaskGroup":
        for branch in node.branches:
            if not _branch(here, task, branch, node.path):
                break
        _close_group(here, node.path)
    else:
        _branch(here, task, Branch(task.name, (), ""), None)
    after = here.node(task.name)
    if after is None or not after.fulfilled:
        here.held = True


def _branch(here: _Pass, task: Task, branch: Branch, group: str | None) -> bool:
    """One call; False when a limit holds it back (later items wait as well)."""
    path = f"{here.path}.{branch.name}"
    node = here.run.nodes.get(path)
    if node is None:
        return _first_call(here, task, branch, group)
    if not node.fulfilled and node.type not in ("Pod", "Suspend") and here.run.is_due(path):
        node = _call(here, task, branch, group) or node
    if not node.fulfilled:
        here.held = True
    else:
        _run_exit_hook(here, task, node, [])
    return True


def _first_call(here: _Pass, task: Task, branch: Branch, group: str | None) -> bool:
    try:
        proceed = should_execute(branch.when)
    except WhenError as err:
        _skip(here, task, branch, group, ERROR, str(err))
        return True
    if not proceed:
        _skip(here, task, branch, group, SKIPPED, f"when '{branch.when}' evaluated false")
        return True
    node = _call(here, task, branch, group)
    if node is None:
        here.held = True
        return False
    _join(here, task, node.path, group)
    if not node.fulfilled:
        here.held = True
    else:
        _run_exit_hook(here, task, node, [])
    return True


def _call(here: _Pass, task: Task, branch: Branch, group: str | None) -> Node | None:
    path = f"{here.path}.{branch.name}"
    options = _options(here, task, branch.name, group)
    try:
        return execute(here.run, path, task.call, here.template.scope, branch.arguments, options)
    except CallError as err:
        return here.run.mark(path, ERROR, f"task '{path}' errored: {err}")


def _join(here: _Pass, task: Task, path: str, group: str | None) -> None:
    if group is None:
        _connect(here, task, path)
    else:
        here.run.connect(group, path)


def _skip(here: _Pass, task: Task, branch: Branch, group: str | None, phase: str, message: str) -> None:
    path = f"{here.path}.{branch.name}"
    here.run.create(path, "Skipped", phase, task.call, _options(here, task, branch.name, group), message)
    _join(here, task, path, group)


def _close_group(here: _Pass, path: str) -> None:
    group = here.run.nodes[path]
    phase = SUCCEEDED
    for branch in group.branches:
        node = here.run.nodes.get(f"{here.path}.{branch.name}")
        if node is None or not node.fulfilled:
            return
        phase = node.phase if node.unsuccessful else phase
    here.run.mark(path, phase)


def _members(here: _Pass, node: Node) -> list[Node]:
    return [here.run.nodes[f"{here.path}.{branch.name}"] for branch in node.branches]


def _run_exit_hook(here: _Pass, task: Task, node: Node, members: list[Node]) -> None:
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


def _check_scopes(here: _Pass) -> None:
    """A target that could not be resolved because an aggregate is no JSON breaks the whole DAG, not only itself."""
    for name in here.shape.targets:
        node = here.node(name)
        if node is not None and node.type == "Skipped" and node.phase == ERROR:
            task_scope(here.run, here.path, here.template, here.tasks[name])
