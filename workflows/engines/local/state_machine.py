"""The state machine of a run: `step(plan, state, event) -> (state, actions)`, deterministic because it has no clock and no I/O."""

from __future__ import annotations

from workflows.engines.local import interventions
from workflows.engines.local.calls import execute, execute_container, execute_suspend, start_action
from workflows.engines.local.dag_template import execute_dag
from workflows.engines.local.hooks import failures, workflow_exit_runs, workflow_hooks_run
from workflows.engines.local.model import LOCAL, TemplateCall, WorkflowPlan
from workflows.engines.local.run_state import (
    ERROR,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    Action,
    Answer,
    AnyEvent,
    CallOptions,
    EngineReturned,
    NodeChanged,
    Operator,
    Outputs,
    PodEnded,
    PodStarted,
    RunBegan,
    RunChanged,
    RunNode,
    RunState,
)
from workflows.engines.local.steps_template import execute_steps
from workflows.engines.local.working_run import CallError, TemplateExecutor, WorkingRun
from workflows.render.grammar.gotext import seconds

VERSION = 1  # of the semantics; a journal written under another one is not replayed
KINDS: dict[str, TemplateExecutor] = {
    "container": execute_container,
    "suspend": execute_suspend,
    "dag": execute_dag,
    "steps": execute_steps,
}
# far more than any manifest needs; a guard against a bug of the machine
_ROUNDS = 10_000


def initial_state() -> RunState:
    """Return the state of a run before its first event."""
    return RunState({})


def step(plan: WorkflowPlan, state: RunState, event: AnyEvent) -> tuple[RunState, tuple[Action, ...]]:
    """Return the state after `event`, and the actions that follow from it; events of a finished run change nothing."""
    run = WorkingRun(plan, state, KINDS)
    run.at = max(state.at, event.at)
    _take(run, event)
    if run.phase == RUNNING and not isinstance(event, PodStarted):
        run.everything = run.everything or not isinstance(event, PodEnded) or bool(run.shutdown or run.broken)
        _settle(run)
        while run.queue and run.live < run.plan.slots:  # pods start in the order in which they became ready
            node = run.change(run.queue.pop(0), launched=True)
            run.live += 1
            run.actions.append(start_action(run, node))
    actions = [*run.actions, *(NodeChanged(run.nodes[path]) for path in run.touched)]
    if (run.phase, run.message, run.suspended, run.shutdown) != (state.phase, state.message, state.suspended, state.shutdown):
        actions.append(RunChanged(run.phase, run.message, run.suspended, run.shutdown))
    return run.state(), tuple(actions)


def _take(run: WorkingRun, event: AnyEvent) -> None:
    if isinstance(event, RunBegan) and not run.phase:
        run.phase, run.suspended = RUNNING, run.plan.suspended
        if run.plan.active_deadline is not None:
            run.timers[""] = run.plan.active_deadline
    elif isinstance(event, Operator):
        run.actions.append(Answer(event.ticket, interventions.operate(run, event)))
    elif isinstance(event, PodStarted):
        _pod_started(run, event.node)
    elif isinstance(event, PodEnded):
        _pod_ended(run, event)
    elif isinstance(event, EngineReturned):
        _engine_returned(run)


def _pod_started(run: WorkingRun, path: str) -> None:
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


def _pod_ended(run: WorkingRun, event: PodEnded) -> None:
    node = run.nodes.get(event.node)
    if node is None or node.fulfilled or not node.launched:
        return
    run.live -= 1
    assert node.template is not None
    declared: dict[str, str | None] = {item.name: event.parameters.get(item.name) for item in node.template.outputs}
    # a pod that a shutdown ended has no exit code in Argo's status either
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


def _engine_returned(run: WorkingRun) -> None:
    """Handle that a new engine took over: fail pods that were being ended, and start the other unfinished pods again."""
    for node in [node for node in run.nodes.values() if node.launched and not node.fulfilled]:
        if node.kill:
            run.live -= 1
            run.mark(node.path, FAILED, node.kill)
        else:
            run.mark(node.path, PENDING)
            # `activeDeadlineSeconds` counts from the new start, `timeout` still from the node's creation
            run.timers.pop(node.path, None)
            if node.template is not None and node.template.timeout:
                run.timers[node.path] = node.started + seconds(node.template.timeout)
            run.actions.append(start_action(run, node))


def _settle(run: WorkingRun) -> None:
    """Apply deadlines and shutdown, and walk over the nodes until nothing changes."""
    for _ in range(_ROUNDS):
        interventions.apply(run)
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
    raise AssertionError("the machine does not settle")  # a bug of the machine: no manifest can cause it


def _walk(run: WorkingRun) -> None:
    name = run.plan.name
    try:
        entry = execute(run, name, TemplateCall(run.plan.entrypoint), LOCAL, run.plan.arguments, CallOptions())
    except CallError as err:
        raise CallError(f"error in entry template execution: {err}") from None
    if entry is None:
        return
    run.status = entry.phase if entry.fulfilled else ""
    run.failures = failures(run) if entry.fulfilled else ""
    waiting = workflow_hooks_run(run, name)
    if waiting or not entry.fulfilled:
        return
    handler: RunNode | None = None
    # `terminate` starts no exit handler, but one that has begun must still end
    if run.plan.exit_hook is not None and (f"{name}.onExit" in run.nodes or run.shutdown != "Terminate"):
        try:
            handler = workflow_exit_runs(run, run.plan.exit_hook)
        except CallError as err:
            raise CallError(f"error in exit template execution : {err}") from None  # the space is in the controller's message
        if handler is None or not handler.fulfilled:
            return
    if run.live == 0:
        _conclude(run, entry, handler)


def _conclude(run: WorkingRun, entry: RunNode, handler: RunNode | None) -> None:
    message = entry.message
    if entry.unsuccessful and run.shutdown:
        message = f"Stopped with strategy '{run.shutdown}'"
    if entry.unsuccessful:
        _finish(run, entry.phase, message)
    elif handler is not None and handler.unsuccessful:
        _finish(run, handler.phase, handler.message)
    else:
        _finish(run, SUCCEEDED, "")


def _finish(run: WorkingRun, phase: str, message: str) -> None:
    run.phase, run.message = phase, message
    run.timers = {}
