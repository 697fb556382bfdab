"""Intervene in open nodes: deadlines, durations of gates, shutdown of the workflow, and requests of operators."""

from __future__ import annotations

from workflows.engines.local.calls import open_gates, pass_gate, with_defaults
from workflows.engines.local.run_state import ERROR, FAILED, RUNNING, SUCCEEDED, EndPod, Operator, RunNode
from workflows.engines.local.working_run import CallError, WorkingRun

POD_DEADLINE = "Pod was active on the node longer than the specified deadline"
STEP_DEADLINE = "Step exceeded its deadline"


def end_pod(run: WorkingRun, node: RunNode, message: str, *, synced: bool = True) -> None:
    """End a pod with this message: at once if no process was started for it, else when the executor has ended its process."""
    if not node.launched:
        run.queue = [path for path in run.queue if path != node.path]
        run.mark(node.path, FAILED, message, synced=synced)
    elif not node.kill:
        run.change(node.path, kill=message, synced=synced)
        run.timers.pop(node.path, None)
        run.actions.append(EndPod(node.path))


def apply(run: WorkingRun) -> None:
    """Apply a shutdown, the workflow's deadline, and all timers that are due."""
    if run.shutdown or run.broken:
        _shut_down(run)
    if run.plan.active_deadline is not None and run.at >= run.plan.active_deadline:
        _workflow_deadline(run)
    for path in [path for path, due in run.timers.items() if due <= run.at]:
        run.timers.pop(path)
        node = run.nodes.get(path)
        if node is not None and not node.fulfilled:
            _due(run, node)


def _due(run: WorkingRun, node: RunNode) -> None:
    if node.type == "Pod":
        if node.launched:
            end_pod(
                run, node, STEP_DEADLINE if node.options.deadline is not None and run.at >= node.options.deadline else POD_DEADLINE
            )
        else:
            end_pod(run, node, "timeout")
    elif node.type == "Suspend":
        try:
            pass_gate(run, node, with_defaults(node))
        except CallError as err:
            run.mark(node.path, ERROR, f"task '{node.path}' errored: {err}")
    run.touch(node.path)


def _open(run: WorkingRun) -> list[RunNode]:
    return [node for node in run.nodes.values() if not node.fulfilled and node.type in ("Pod", "Suspend")]


def _shut_down(run: WorkingRun) -> None:
    for node in _open(run):
        if run.broken:
            end_pod(run, node, "workflow errored") if node.type == "Pod" else run.mark(node.path, FAILED, "workflow errored")
        elif run.must_not_run(node.on_exit):
            if node.type == "Pod":
                # the two spaces are in the controller's message as well
                end_pod(run, node, f"workflow shutdown with strategy:  {run.shutdown}", synced=False)
            else:
                run.mark(node.path, FAILED, f"Stopped with strategy '{run.shutdown}'")


def _workflow_deadline(run: WorkingRun) -> None:
    for node in _open(run):
        if not node.on_exit:
            end_pod(run, node, STEP_DEADLINE) if node.type == "Pod" else run.mark(node.path, FAILED, STEP_DEADLINE)


# --- operators -----------------------------------------------------------------------------------------------------------


def operate(run: WorkingRun, event: Operator) -> str:
    """Do what an operator asked, completely or not at all; return why it was refused, or "" if it was done."""
    if run.phase != RUNNING:
        return f"the workflow is {run.phase or 'not begun'}"
    try:
        _VERBS[event.verb](run, event)
    except KeyError:
        return f"unknown action '{event.verb}'"
    except CallError as err:
        return str(err)
    return ""


def _gates(run: WorkingRun, name: str) -> list[RunNode]:
    gates = [node for node in open_gates(run) if name in (node.name, node.path)]
    if not gates:
        raise CallError(
            f"currently, set only targets suspend nodes: no suspend nodes matching nodeFieldSelector: displayName={name}"
        )
    return gates


def _given(node: RunNode, event: Operator) -> dict[str, str | None]:
    values = dict(node.outputs.parameters)
    for name, value in event.parameters.items():
        if name not in values:
            raise CallError(f"node is not expecting output parameter '{name}'")
        if values[name] is not None:
            raise CallError(f"cannot set output parameter '{name}' because it does not use valueFrom.raw or it was already set")
        values[name] = value
    return values


def _set(run: WorkingRun, event: Operator) -> None:
    prepared = [(node, _given(node, event)) for node in _gates(run, event.node)]
    for node, values in prepared:
        run.set_outputs(node.path, type(node.outputs)(values))
        if event.message:
            run.mark(node.path, node.phase, event.message)


def _approve(run: WorkingRun, event: Operator) -> None:
    """Set all outputs of one gate and let the run continue, in one step. Raises CallError for another set of outputs."""
    gates = _gates(run, event.node)
    if len(gates) > 1:
        raise CallError(f"{len(gates)} open gates are named '{event.node}': name one by its full path")
    node = gates[0]
    expected = {item.name for item in node.template.outputs if item.supplied} if node.template else set()
    if expected != set(event.parameters):
        expected_names, given_names = (", ".join(sorted(names)) or "no parameter" for names in (expected, set(event.parameters)))
        raise CallError(f"an approval sets exactly {expected_names}; got {given_names}")
    pass_gate(run, node, dict(event.parameters), event.message)


def _resume(run: WorkingRun, event: Operator) -> None:
    if event.node:
        # like `argo resume --node-field-selector`, which does not fill in the defaults of outputs
        for node in _gates(run, event.node):
            run.mark(node.path, SUCCEEDED, event.message or None)
        return
    prepared = [(node, with_defaults(node)) for node in open_gates(run)]
    if not prepared and not run.suspended:
        raise CallError("nothing waits: the workflow is not suspended and no gate is open")
    run.suspended = False
    for node, values in prepared:
        pass_gate(run, node, values, event.message)


def _stop(run: WorkingRun, event: Operator) -> None:
    if event.node:
        for node in _gates(run, event.node):
            run.mark(node.path, FAILED, event.message or None)
        return
    if run.shutdown:
        raise CallError(f"the workflow is already stopping ({run.shutdown})")
    run.shutdown, run.suspended = "Stop", False


def _terminate(run: WorkingRun, event: Operator) -> None:
    if event.node:
        raise CallError("terminate applies to the whole workflow only")
    run.shutdown, run.suspended = "Terminate", False


def _suspend(run: WorkingRun, event: Operator) -> None:
    if event.node:
        raise CallError("suspend applies to the whole workflow only")
    run.suspended = True


_VERBS = {"approve": _approve, "set": _set, "resume": _resume, "stop": _stop, "terminate": _terminate, "suspend": _suspend}
