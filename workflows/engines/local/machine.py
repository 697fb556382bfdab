"""The pure state machine: `step(plan, state, event) -> (state, actions)`; no clock, no I/O, the same answer every time."""

from __future__ import annotations

from workflows.engines.local import control
from workflows.engines.local.calls import execute, execute_container, execute_suspend, start_action
from workflows.engines.local.dag import execute_dag
from workflows.engines.local.hooks import failures, workflow_exit_runs, workflow_hooks_run
from workflows.engines.local.model import LOCAL, Call, Plan
from workflows.engines.local.run import CallError, Kind, Run
from workflows.engines.local.state import (
    ERROR,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    Action,
    Answer,
    AnyEvent,
    EngineReturned,
    Node,
    NodeChanged,
    Operator,
    Options,
    Outputs,
    PodEnded,
    PodStarted,
    RunBegan,
    RunChanged,
    State,
)
from workflows.engines.local.steps import execute_steps
from workflows.render.grammar.gotext import seconds

VERSION = 1  # of the semantics; a journal written under another one is not replayed
KINDS: dict[str, Kind] = {"container": execute_container, "suspend": execute_suspend, "dag": execute_dag, "steps": execute_steps}
_ROUNDS = 10_000


def initial() -> State:
    """The state before the first event."""
    return State({})


def step(plan: Plan, state: State, event: AnyEvent) -> tuple[State, tuple[Action, ...]]:
    """What follows from `event`.  Events of a run that is finished change nothing."""
    run = Run(plan, state, KINDS)
    run.at = max(state.at, event.at)
    _take(run, event)
    if run.phase == RUNNING and not isinstance(event, PodStarted):
        run.everything = run.everything or not isinstance(event, PodEnded) or bool(run.shutdown or run.broken)
        _settle(run)
        _launch(run)
    actions = [*run.actions, *(NodeChanged(run.nodes[path]) for path in run.touched), *_run_changed(run, state)]
    return run.state(), tuple(actions)


def _run_changed(run: Run, before: State) -> list[Action]:
    now = (run.phase, run.message, run.suspended, run.shutdown)
    return [] if now == (before.phase, before.message, before.suspended, before.shutdown) else [RunChanged(*now)]


def _take(run: Run, event: AnyEvent) -> None:
    if isinstance(event, RunBegan) and not run.phase:
        run.phase, run.suspended = RUNNING, run.plan.suspended
        if run.plan.active_deadline is not None:
            run.timers[""] = run.plan.active_deadline
    elif isinstance(event, Operator):
        run.actions.append(Answer(event.ticket, control.operate(run, event)))
    elif isinstance(event, PodStarted):
        _pod_started(run, event.node)
    elif isinstance(event, PodEnded):
        _pod_ended(run, event)
    elif isinstance(event, EngineReturned):
        _engine_returned(run)


def _pod_started(run: Run, path: str) -> None:
    node = run.nodes.get(path)
    if node is None or node.phase != PENDING:
        return
    assert node.template is not None
    ends = [node.options.deadline, run.timers.get(path)]
    if node.template.active_deadline:
        ends.append(run.at + seconds(node.template.active_deadline))
    due = [end for end in ends if end is not None]
    if due and not node.kill:
        run.timers[path] = min(due)
    run.mark(path, RUNNING)


def _pod_ended(run: Run, event: PodEnded) -> None:
    node = run.nodes.get(event.node)
    if node is None or node.fulfilled or not node.launched:
        return
    run.live -= 1
    assert node.template is not None
    declared: dict[str, str | None] = {item.name: event.parameters.get(item.name) for item in node.template.outputs}
    code = None if not node.synced else event.exit_code
    run.set_outputs(node.path, Outputs(declared, code, event.result))
    if node.kill:
        run.mark(node.path, FAILED, node.kill)
    elif event.refused:
        run.mark(node.path, FAILED, f"main: Error (exit code {event.exit_code}): {event.refused}")
    elif event.exit_code != 0:
        run.mark(node.path, FAILED, f"main: Error (exit code {event.exit_code})")
    elif event.undelivered:
        run.mark(node.path, ERROR, f"wait: Error (exit code 64): {event.undelivered}")
    else:
        run.mark(node.path, SUCCEEDED)


def _engine_returned(run: Run) -> None:
    """Every process of the old engine is ended: what was to be ended is, the rest starts again."""
    for node in [node for node in run.nodes.values() if node.launched and not node.fulfilled]:
        if node.kill:
            run.live -= 1
            run.mark(node.path, FAILED, node.kill)
        else:
            _restart_clock(run, run.mark(node.path, PENDING))
            run.actions.append(start_action(run, node))


def _restart_clock(run: Run, node: Node) -> None:
    """`activeDeadlineSeconds` counts from the new start, `timeout` still from the node's creation."""
    run.timers.pop(node.path, None)
    if node.template is not None and node.template.timeout:
        run.timers[node.path] = node.started + seconds(node.template.timeout)


def _launch(run: Run) -> None:
    """Hand pods to the executor while slots are free, in the order in which they became ready."""
    while run.queue and run.live < run.plan.slots:
        node = run.change(run.queue.pop(0), launched=True)
        run.live += 1
        run.actions.append(start_action(run, node))


def _settle(run: Run) -> None:
    """Apply outside forces and walk the tree until nothing moves."""
    for _ in range(_ROUNDS):
        control.apply(run)
        if run.broken and not run.live:
            _finish(run, ERROR, run.broken)
        if run.broken or run.suspended:
            return
        run.begin_round()
        try:
            _walk(run)
        except CallError as err:
            run.broken, run.changed = str(err), True
        if run.phase != RUNNING or not run.changed:
            return
    raise AssertionError("the machine does not settle")  # a bug, never a property of a manifest


def _walk(run: Run) -> None:
    name = run.plan.name
    try:
        entry = execute(run, name, Call(run.plan.entrypoint), LOCAL, run.plan.arguments, Options())
    except CallError as err:
        raise CallError(f"error in entry template execution: {err}") from None
    if entry is None:
        return
    run.status = entry.phase if entry.fulfilled else ""
    run.failures = failures(run) if entry.fulfilled else ""
    waiting = workflow_hooks_run(run, name)
    if waiting or not entry.fulfilled:
        return
    handler: Node | None = None
    if run.plan.exit_hook is not None and (f"{name}.onExit" in run.nodes or run.shutdown != "Terminate"):
        handler = _exit_handler(run)
        if handler is None or not handler.fulfilled:
            return
    if run.live == 0:
        _conclude(run, entry, handler)


def _exit_handler(run: Run) -> Node | None:
    assert run.plan.exit_hook is not None
    try:
        return workflow_exit_runs(run, run.plan.exit_hook)
    except CallError as err:
        raise CallError(f"error in exit template execution : {err}") from None


def _conclude(run: Run, entry: Node, handler: Node | None) -> None:
    message = entry.message
    if entry.unsuccessful and run.shutdown:
        message = f"Stopped with strategy '{run.shutdown}'"
    if entry.unsuccessful:
        _finish(run, entry.phase, message)
    elif handler is not None and handler.unsuccessful:
        _finish(run, handler.phase, handler.message)
    else:
        _finish(run, SUCCEEDED, "")


def _finish(run: Run, phase: str, message: str) -> None:
    run.phase, run.message = phase, message
    run.timers = {}
