"""Call a template: fill in arguments, respect limits and locks, retry if it has a strategy, then execute it by its kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from workflows.engines.local.model import Argument, Backoff, Retry, TemplateCall, TemplateModel, WorkflowPlan
from workflows.engines.local.run_state import ERROR, FAILED, PENDING, RUNNING, SUCCEEDED, CallOptions, RunNode, StartPod
from workflows.engines.local.scopes import ABSENT
from workflows.engines.local.substitution import LENIENT, Scope, SubstitutionError, boolean, substitute
from workflows.engines.local.working_run import CallError, WorkingRun
from workflows.render.grammar.gotext import fnv1a, json_text, number_text, seconds

MAX_DEPTH = 100  # nested template calls, the limit of Argo's controller
MAX_NODES = 50_000  # of one run, so that a workflow that multiplies itself does not exhaust the memory
_LONGEST_PREFIX = 253 - 10 - 1 - 1  # a pod name is at most 253 long, its number 10, the dash 1


def pod_name(plan: WorkflowPlan, path: str, template: str) -> str:
    """Return the name that Argo would give to the pod of a node."""
    if path == plan.name:
        return plan.name
    return f"{f'{plan.name}-{template}'[:_LONGEST_PREFIX]}-{fnv1a(path)}"


def with_arguments(template: TemplateModel, arguments: tuple[Argument, ...], scope: Scope) -> TemplateModel:
    """Return the template with its inputs set and its texts substituted: workflow-wide and local variables first, then inputs.

    Raises CallError if an input has no value.
    """
    values = {item.name: item.value for item in arguments}
    inputs = []
    for item in template.inputs:
        value = item.default if item.default is not None else item.value
        argument = values.get(item.name)
        if argument == ABSENT:
            if value is None:
                sentence = "argument references an absent optional (skipped/omitted node output with no default)"
                raise CallError(f"inputs.parameters.{item.name}: {sentence}")
        elif argument is not None:
            value = argument
        if value is None:
            raise CallError(f"inputs.parameters.{item.name} was not supplied")
        inputs.append(replace(item, value=value))
    try:
        once = substitute(replace(template, inputs=tuple(inputs)), scope, LENIENT)
        return substitute(once, {**scope, **_input_names(once)}, LENIENT)
    except SubstitutionError as err:
        raise CallError(str(err)) from None


def _input_names(template: TemplateModel) -> dict[str, str | None]:
    names: dict[str, str | None] = {f"inputs.parameters.{item.name}": item.value for item in template.inputs}
    names["inputs.parameters"] = json_text(
        [
            {
                key: value
                for key, value in (("name", item.name), ("default", item.default), ("value", item.value))
                if value is not None
            }
            for item in template.inputs
        ],
        sort=False,
    )
    names.update({f"outputs.parameters.{item.name}.path": item.path for item in template.outputs if item.path})
    return names


def execute(
    run: WorkingRun, path: str, call: TemplateCall, scope: str, arguments: tuple[Argument, ...], options: CallOptions
) -> RunNode | None:
    """Call a template as the node `path`, or continue that node, and return it; return None if a limit keeps it from starting.

    Raises CallError if the call fails.
    """
    node = run.nodes.get(path)
    if node is not None and node.fulfilled:
        return node
    run.depth += 1
    try:
        if run.depth > MAX_DEPTH:
            raise run.fail_call(path, call, options, "Maximum recursion depth exceeded. See https://argo-workflows.readthedocs.io")
        if node is None and len(run.nodes) >= MAX_NODES:
            raise run.fail_call(path, call, options, f"the workflow has more than {MAX_NODES} nodes")
        if node is not None and node.template is not None:
            return _carry_on(run, path, node.template, call, node.options)
        template = _template(run, path, call, scope, arguments, options)
        if not run.has_room(options.boundary) or not run.lock(template.mutexes, path):
            return None
        return _carry_on(run, path, template, call, options)
    finally:
        run.depth -= 1


def _template(
    run: WorkingRun, path: str, call: TemplateCall, scope: str, arguments: tuple[Argument, ...], options: CallOptions
) -> TemplateModel:
    declared = run.plan.template(call, scope)
    if declared is None:
        raise run.fail_call(path, call, options, f"template {call.ref or 'workflow'}.{call.template} not found")
    names = run.globals()
    names.update(options.variables)
    names["node.name"] = path
    if declared.kind == "container" and declared.retry is None:
        names["pod.name"] = pod_name(run.plan, path, declared.name)
    try:
        return with_arguments(declared, arguments, names)
    except CallError as err:
        raise run.fail_call(path, call, options, str(err)) from None


def _carry_on(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode | None:
    if template.retry is not None:
        return _retrying(run, path, template, call, options)
    return dispatch(run, path, template, call, options)


def dispatch(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode:
    """Execute a template by its kind and return its node. If that raises CallError, mark the node as Error and raise again."""
    try:
        return run.kinds[template.kind](run, path, template, call, options)
    except CallError as err:
        raise run.fail_call(path, call, options, str(err)) from None


def _retrying(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode:
    assert template.retry is not None
    if path not in run.nodes:
        run.create(path, "Retry", RUNNING, call, options, template=template)
    while True:
        try:
            if not judge(run, run.nodes[path], template.retry):
                return run.nodes[path]
        except SubstitutionError as err:
            raise run.fail_call(path, call, options, str(err)) from None
        child = _attempt(run, path, template, call, options)
        if child is None or not child.fulfilled:
            return run.nodes[path]


def _attempt(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode | None:
    """Continue the open attempt of a Retry node, or begin the next one; return it, or None if a limit keeps it from starting."""
    assert template.retry is not None
    attempts = run.attempts(run.nodes[path])
    last = attempts[-1] if attempts else None
    if last is not None and not last.fulfilled:
        assert last.template is not None
        child, attempt, chosen = last.path, last.template, last.options
    else:
        if not run.has_room(options.boundary):
            return None
        child = f"{path}({len(attempts)})"
        names = {**run.globals(), **_retry_names(run, child, template, len(attempts), last)}
        attempt = substitute(template, names, LENIENT)
        chosen = replace(options, owner=path, retried=True, deadline=_latest_end(attempts, template))
    try:
        node = dispatch(run, child, attempt, call, chosen)
    except CallError:
        run.connect(path, child)
        if not template.retry.covers(ERROR):
            raise
        return run.nodes[child]
    run.connect(path, child)
    return node


def _latest_end(attempts: list[RunNode], template: TemplateModel) -> float | None:
    backoff = template.retry.backoff if template.retry is not None else None
    if not attempts or backoff is None or not backoff.max_duration:
        return None
    return attempts[0].started + seconds(backoff.max_duration)


def _retry_names(run: WorkingRun, child: str, template: TemplateModel, number: int, last: RunNode | None) -> dict[str, str | None]:
    names: dict[str, str | None] = {
        "retries": str(number),
        "lastRetry.exitCode": "0",  # Argo's value before the first retry; in a retry's expression it is -1
        "lastRetry.duration": "0",
        "lastRetry.status": "",
        "lastRetry.message": "",
    }
    if template.kind == "container":
        names["pod.name"] = pod_name(run.plan, child, template.name)
    if last is not None:
        if last.outputs.exit_code is not None:
            names["lastRetry.exitCode"] = str(last.outputs.exit_code)
        names["lastRetry.status"] = last.phase
        names["lastRetry.message"] = last.message
        names["lastRetry.duration"] = number_text(round((last.finished or last.started) - last.started, 3))
    return names


# --- the two kinds that have no children -------------------------------------------------------------------------------


def execute_container(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode:
    """Create the Pending node of a pod and queue it; the state machine starts it when a slot is free."""
    if path in run.nodes:
        return run.nodes[path]
    node = run.create(path, "Pod", PENDING, call, options, template=template)
    if run.must_not_run(options.on_exit):
        return run.mark(path, FAILED, f"workflow shutdown with strategy: {run.shutdown}", synced=False)
    if run.past_deadline(options.on_exit):
        return run.mark(path, FAILED, "Step exceeded its deadline")
    if template.timeout:
        run.timers[path] = run.at + seconds(template.timeout)
    run.queue.append(path)
    return node


def start_action(run: WorkingRun, node: RunNode) -> StartPod:
    """Return the action by which the executor starts a pod's process."""
    assert node.template is not None
    parent = run.nodes.get(node.boundary)
    read = parent.template.results_read if parent is not None and parent.template is not None else frozenset()
    # like Argo, keep stdout only if the enclosing template refers to it (`includeScriptOutput` in workflow/controller/operator.go)
    return StartPod(node.path, node.template, node.options.task in read)


def execute_suspend(run: WorkingRun, path: str, template: TemplateModel, call: TemplateCall, options: CallOptions) -> RunNode:
    """Create the Running node of a gate, which a person or its duration ends."""
    if path in run.nodes:
        return run.nodes[path]
    node = run.create(path, "Suspend", RUNNING, call, options, template=template)
    inputs = {item.name: item.default for item in template.inputs}
    declared: dict[str, str | None] = {item.name: None for item in template.outputs if item.supplied}
    fallbacks = tuple(
        replace(item, default=inputs.get(item.name) if item.default is None else item.default) for item in template.outputs
    )
    node = run.change(path, outputs=replace(node.outputs, parameters=declared), template=replace(template, outputs=fallbacks))
    if template.duration:
        run.timers[path] = run.at + seconds(template.duration)
    return node


def open_gates(run: WorkingRun) -> list[RunNode]:
    """Return the suspend nodes that still wait, in order of creation."""
    return [node for node in run.nodes.values() if node.type == "Suspend" and node.phase == RUNNING]


def with_defaults(node: RunNode) -> Mapping[str, str | None]:
    """Return a gate's outputs with defaults for those that nobody supplied. Raises CallError if one has no default."""
    assert node.template is not None
    values = dict(node.outputs.parameters)
    for item in node.template.outputs:
        if item.supplied and values.get(item.name) is None:
            if item.default is None:
                raise CallError(f"raw output parameter '{item.name}' has not been set and does not have a default value")
            values[item.name] = item.default
    return values


def pass_gate(run: WorkingRun, node: RunNode, values: Mapping[str, str | None], message: str = "") -> None:
    """Mark a gate as Succeeded, with these values as its outputs."""
    run.set_outputs(node.path, replace(node.outputs, parameters=values))
    run.mark(node.path, SUCCEEDED, message or None)


def judge(run: WorkingRun, node: RunNode, strategy: Retry) -> bool:
    """Return True if a Retry node must continue an attempt (the open one or a new one), False if the node has ended or waits.

    Raises SubstitutionError if the strategy's expression is not a boolean.
    """
    if node.fulfilled:
        return False
    attempts = run.attempts(node)
    if not attempts or not attempts[-1].fulfilled:
        return True
    last = attempts[-1]
    if not last.unsuccessful:
        return _end(run, node, last, SUCCEEDED, "")
    if run.shutdown:
        return _end(run, node, last, last.phase, f"Stopped with strategy '{run.shutdown}'")
    if run.past_deadline(node.on_exit):
        return _end(run, node, last, last.phase, "retry exceeded workflow deadline")
    # the controller waits for the back-off before it finds that no retry is left; the end is the same, so no wait here
    if not strategy.covers(last.phase):
        return _end(run, node, last, last.phase, last.message)
    if strategy.limit is not None and len(attempts) > strategy.limit:
        return _end(run, node, last, last.phase, "No more retries left")
    if strategy.expression and not boolean(strategy.expression, expression_scope(attempts)):
        return _end(run, node, last, last.phase, "retryStrategy.expression evaluated to false")
    return strategy.backoff is None or _backed_off(run, node, attempts, strategy.backoff, strategy.limit)


def expression_scope(attempts: list[RunNode]) -> dict[str, str]:
    """Return the variables of a retry's expression, `lastRetry.*` and `retries`, all as text; an absent exit code is -1."""
    last = attempts[-1]
    code = last.outputs.exit_code
    return {
        "retries": str(len(attempts) - 1),
        "lastRetry.exitCode": "-1" if code is None else str(code),
        "lastRetry.status": last.phase,
        "lastRetry.duration": number_text(round((last.finished or last.started) - last.started, 3)),
        "lastRetry.message": last.message,
    }


def _end(run: WorkingRun, node: RunNode, last: RunNode, phase: str, message: str) -> bool:
    run.set_outputs(node.path, last.outputs)
    run.mark(node.path, phase, message)
    return False


def _backed_off(run: WorkingRun, node: RunNode, attempts: list[RunNode], backoff: Backoff, limit: int | None) -> bool:
    """Return True if the back-off before the next attempt is over.

    End the node and return False if `maxDuration`, counted from the first start, leaves no time for another attempt.
    """
    last = attempts[-1]
    latest = attempts[0].started + seconds(backoff.max_duration) if backoff.max_duration else None
    if latest is not None and run.at > latest:
        return _end(run, node, last, last.phase, "Max duration limit exceeded")
    wait = seconds(backoff.duration)
    if backoff.factor > 0:
        wait *= float(backoff.factor ** min(len(attempts) - 1, 60))  # a float cannot hold 2 ** 1024
    if backoff.cap:
        wait = min(wait, seconds(backoff.cap))
    due = (run.at if last.finished is None else last.finished) + wait
    if latest is not None and due > latest:
        return _end(run, node, last, last.phase, "Backoff would exceed max duration limit")
    if run.at < due and (limit is None or len(attempts) <= limit):
        run.timers[node.path] = due
        run.mark(node.path, RUNNING, f"Backoff for {number_text(round(wait, 3))} seconds")
        return False
    run.timers.pop(node.path, None)
    run.mark(node.path, RUNNING, "")
    return True
