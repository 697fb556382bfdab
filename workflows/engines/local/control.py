"""What happens to open nodes from outside of the tree: deadlines, durations, shutdown, and what an operator does."""

from __future__ import annotations

from workflows.engines.local.calls import open_gates, pass_gate, with_defaults
from workflows.engines.local.run import CallError, Run
from workflows.engines.local.state import ERROR, FAILED, RUNNING, SUCCEEDED, EndPod, Node, Operator

POD_DEADLINE = "Pod was active on the node longer than the specified deadline"
STEP_DEADLINE = "Step exceeded its deadline"


def end_pod(run: Run, node: Node, message: str, *, synced: bool = True) -> None:
    """End a pod with this message: at once when it was never started, else once the executor has ended its process."""
    if not node.launched:
        run.queue = [path for path in run.queue if path != node.path]
        run.mark(node.path, FAILED, message, synced=synced)
    elif not node.kill:
        run.change(node.path, kill=message, synced=synced)
        run.timers.pop(node.path, None)
        run.actions.append(EndPod(node.path))


def apply(run: Run) -> None:
    """Shutdown, the workflow's deadline and what is due by time."""
    if run.shutdown or run.broken:
        _shut_down(run)
    if run.plan.active_deadline is not None and run.at >= run.plan.active_deadline:
        _workflow_deadline(run)
    for path in [path for path, due in run.timers.items() if due <= run.at]:
        run.timers.pop(path)
        node = run.nodes.get(path)
        if node is not None and not node.fulfilled:
            _due(run, node)


def _due(run: Run, node: Node) -> None:
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


def _open(run: Run) -> list[Node]:
    return [node for node in run.nodes.values() if not node.fulfilled and node.type in ("Pod", "Suspend")]


def _shut_down(run: Run) -> None:
    for node in _open(run):
        if run.broken:
            end_pod(run, node, "workflow errored") if node.type == "Pod" else run.mark(node.path, FAILED, "workflow errored")
        elif run.must_not_run(node.on_exit):
            if node.type == "Pod":
                end_pod(run, node, f"workflow shutdown with strategy:  {run.shutdown}", synced=False)
            else:
                run.mark(node.path, FAILED, f"Stopped with strategy '{run.shutdown}'")


def _workflow_deadline(run: Run) -> None:
    for node in _open(run):
        if not node.on_exit:
            end_pod(run, node, STEP_DEADLINE) if node.type == "Pod" else run.mark(node.path, FAILED, STEP_DEADLINE)


# --- operators -----------------------------------------------------------------------------------------------------------


def operate(run: Run, event: Operator) -> str:
    """Do what an operator asked, or nothing at all; returns why not, "" when it is done."""
    if run.phase != RUNNING:
        return f"the workflow is {run.phase or 'not begun'}"
    try:
        _VERBS[event.verb](run, event)
    except KeyError:
        return f"unknown action '{event.verb}'"
    except CallError as err:
        return str(err)
    return ""


def _gates(run: Run, name: str) -> list[Node]:
    found = [node for node in open_gates(run) if name in (node.name, node.path)]
    if not found:
        raise CallError(
            f"currently, set only targets suspend nodes: no suspend nodes matching nodeFieldSelector: displayName={name}"
        )
    return found


def _given(node: Node, event: Operator) -> dict[str, str | None]:
    values = dict(node.outputs.parameters)
    for name, value in event.parameters.items():
        if name not in values:
            raise CallError(f"node is not expecting output parameter '{name}'")
        if values[name] is not None:
            raise CallError(f"cannot set output parameter '{name}' because it does not use valueFrom.raw or it was already set")
        values[name] = value
    return values


def _set(run: Run, event: Operator) -> None:
    prepared = [(node, _given(node, event)) for node in _gates(run, event.node)]
    for node, values in prepared:
        run.set_outputs(node.path, type(node.outputs)(values))
        if event.message:
            run.mark(node.path, node.phase, event.message)


def _approve(run: Run, event: Operator) -> None:
    """All supplied outputs of one gate and its release, in one go; anything less is refused."""
    found = _gates(run, event.node)
    if len(found) > 1:
        raise CallError(f"{len(found)} open gates are named '{event.node}': name one by its full path")
    node = found[0]
    wanted = {item.name for item in node.template.outputs if item.supplied} if node.template else set()
    if wanted != set(event.parameters):
        asked, given = (", ".join(sorted(names)) or "no parameter" for names in (wanted, set(event.parameters)))
        raise CallError(f"an approval sets exactly {asked}; got {given}")
    pass_gate(run, node, dict(event.parameters), event.message)


def _resume(run: Run, event: Operator) -> None:
    if event.node:
        for node in _gates(run, event.node):
            run.mark(node.path, SUCCEEDED, event.message or None)
        return
    prepared = [(node, with_defaults(node)) for node in open_gates(run)]
    if not prepared and not run.suspended:
        raise CallError("nothing waits: the workflow is not suspended and no gate is open")
    run.suspended = False
    for node, values in prepared:
        pass_gate(run, node, values, event.message)


def _stop(run: Run, event: Operator) -> None:
    if event.node:
        for node in _gates(run, event.node):
            run.mark(node.path, FAILED, event.message or None)
        return
    if run.shutdown:
        raise CallError(f"the workflow is already stopping ({run.shutdown})")
    run.shutdown, run.suspended = "Stop", False


def _terminate(run: Run, event: Operator) -> None:
    if event.node:
        raise CallError("terminate is for the whole workflow")
    run.shutdown, run.suspended = "Terminate", False


def _suspend(run: Run, event: Operator) -> None:
    if event.node:
        raise CallError("suspend is for the whole workflow")
    run.suspended = True


_VERBS = {"approve": _approve, "set": _set, "resume": _resume, "stop": _stop, "terminate": _terminate, "suspend": _suspend}
