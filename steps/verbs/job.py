"""Verb job: run a functional gate. It starts check pods in the target, waits for their reports, judges them, and cleans up."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.contract.exit import ExitCode
from steps.contract.objects.checks import CHECK_LABEL, CHECK_NAMESPACE
from steps.contract.runs.evidence import Diagnosis, Evidence
from steps.contract.verdict import FailureClass, Status, Verdict, failed, passed
from steps.errors import NotUnderstood, Refused, StepError, Temporary, Unreachable
from steps.runtime import check_manifests, gating, reuse, target, watching
from steps.runtime.context import Context
from steps.runtime.diagnose import diagnose, diagnose_refusal
from steps.runtime.drain_round_trip import DrainPlan, RoundTrip, as_output
from steps.stages.shared.kube_reader import Scope

_KEPT = ("Namespace", "ServiceAccount")
_NAMED = 5
OUTPUT = "output"
"""Name of the argument by which a probe gets the output of the check's command."""
_STDERR = 2000
_HANGS = "see with `kubectl get -o yaml` what holds it: a finalizer, or a node that is away"
_REFUSALS = {
    404: (FailureClass.DEPENDENCY, "install what serves this kind first: a CRD or a namespace is missing"),
    409: (FailureClass.COMPARISON, f"an object of this name is in the way; {_HANGS}"),
}
"""Failure class and next step for refusals of the API server, by HTTP status."""


class PodCommand(Struct, frozen=True, kw_only=True):
    """A check that runs in a pod that is there already: a shell script with its variables, in one container.

    `check` is the check's name, which the script gets as the variable CHECK.
    """

    namespace: str
    pod: str
    container: str
    check: str
    script: str
    variables: dict[str, str] = {}

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command as words; `env` sets the variables, so that no shell reads their values."""
        variables = {"CHECK": self.check, "NODE_NAME": self.pod, "REPORT": "/dev/stdout"} | self.variables
        return ("env", *(f"{key}={value}" for key, value in variables.items()), "/bin/sh", "-c", self.script)


class Arguments(Struct, frozen=True, kw_only=True):
    """Arguments of verb job, which runs a functional check.

    `command` runs in a pod of the platform, and its output goes to the probe; `round_trip` drains and resumes one node. `objects`
    are created in order with their markers replaced (see `check_manifests`); their pods carry the label `bringup/check` with one
    of `checks`. Only nodes that passed the stage's `after` tasks take part, and at least `least` of them are needed.
    """

    gate: str
    objects: tuple[dict[str, Any], ...] = ()
    checks: tuple[str, ...] = ()
    command: PodCommand | None = None
    round_trip: DrainPlan | None = None
    namespace: str = CHECK_NAMESPACE
    select: str = "gpu"
    after: tuple[str, ...] = ()
    least: int = 1
    namespaces: tuple[str, ...] = ()


class _Measured(Struct, frozen=True, kw_only=True):
    """Result of a check that this attempt ran: its verdict, the last observation, and the findings about a failure."""

    verdict: Verdict
    observation: Any = None
    diagnosis: tuple[Diagnosis, ...] = ()


def run(context: Context) -> ExitCode:
    """Run the check. Its verdict is data for the judge, so the task ends with 0 once the record is written."""
    arguments = context.arguments(Arguments)
    nodes = _nodes_under_test(context, arguments)
    if len(nodes) < arguments.least:
        reason = f"not run: {len(nodes)} nodes passed the gates before it, {arguments.least} are needed"
        context.record(Verdict(gate=arguments.gate, status=Status.SKIPPED, reason=reason))
        context.output("verdict", Status.SKIPPED.value)
        return ExitCode.OK
    target.claim(context)
    earlier = reuse.earlier(context)
    reason = reuse.reason_to_repeat(context, earlier, nodes, arguments.select) if earlier is not None else ""
    if earlier is not None and not reason:
        _record_reused(context, arguments, earlier, nodes)
        return ExitCode.OK
    others = check_manifests.other_nodes(context.kube, nodes)
    objects = [check_manifests.on_nodes(manifest, nodes, others) for manifest in arguments.objects]
    if remaining := _removed(context, arguments, objects):
        raise Temporary(f"left of an earlier attempt after {timeouts.JOB_DELETE:.0f} s: {remaining}", hint=_HANGS)
    try:
        measured = _measure(context, arguments, objects, nodes)
        # the reason belongs into the record: measuring again takes GPUs from users
        if reason:
            measured = _noted(measured, f"measured again, not reused: {reason}")
        _record(context, measured)  # before the clean-up: a short outage of the API must not lose hours of measuring
        context.output("verdict", measured.verdict.status.value)
    finally:
        remaining = _cleaned(context, arguments, objects)
    if remaining:
        _record(context, _noted(measured, f"not cleaned up: {remaining}; {_HANGS}"))
    return ExitCode.OK


def _record_reused(context: Context, arguments: Arguments, earlier: Evidence, nodes: tuple[str, ...]) -> None:
    """Store an earlier run's pass of the same check as this task's record, because a platform in use has no free GPUs for it."""
    then = earlier.verdict or passed(arguments.gate, "")
    rows = tuple(row for row in then.nodes if row.node in nodes)
    # the run that measured, which is not the earlier one if that reused a record too
    run, reason = earlier.reused or earlier.run, then.reason.removeprefix(f"unchanged since run {earlier.reused}: ")
    context.record(passed(arguments.gate, f"unchanged since run {run}: {reason}", rows), reused=run)
    context.output("verdict", Status.PASS.value)


def _measure(context: Context, arguments: Arguments, objects: list[dict[str, Any]], nodes: tuple[str, ...]) -> _Measured:
    """Create the check's objects and watch their pods until the gate is decided. Return verdict, observation and findings."""
    gate, probe = gating.find(arguments.gate), gating.probe(arguments.gate)
    leaves = context.leaves(arguments.select) if context.task.expectations.get("tree") else {}
    want = gate.expect(context.task.expectations, nodes, context.groups(nodes), leaves)
    if refused := _create(context, arguments, objects):
        return refused
    since = context.clock.now()
    before: Any = None
    scope_arguments = context.task.arguments
    if arguments.command is not None:
        scope_arguments = scope_arguments | {OUTPUT: execute(context.kube, arguments.command, context.task.deadline_seconds)}
    if arguments.round_trip is not None:
        trip = RoundTrip(context, arguments.round_trip, context.task.arguments, nodes[-1])
        scope_arguments = scope_arguments | {OUTPUT: as_output(trip.run())}

    def look(now: float) -> tuple[Any, Verdict]:
        nonlocal before
        seen = probe(context.kube, Scope(nodes=nodes, arguments=scope_arguments, now=now, since=since))
        before = seen = watching.keep_check_pods(seen, before)
        return seen, gate.decide(seen, want)

    watched = watching.watch_until_decided(look, context.clock, context.task.deadline_seconds)
    verdict, diagnosis = watched.verdict, tuple[Diagnosis, ...]()
    if not verdict.is_pass:  # before the pods are deleted
        spaces = (arguments.namespace, *arguments.namespaces)
        diagnosis = diagnose(context.kube, spaces, verdict, checks=arguments.checks, check_namespace=arguments.namespace)
    return _Measured(verdict=verdict, observation=watched.observation, diagnosis=diagnosis)


def execute(kube: Kube, command: PodCommand, seconds: float) -> dict[str, Any]:
    """Run a check's command; return its pod, output and exit code, or in `error` why it could not run or did not end.

    Such an error is no end of the task: the gate says what it means for the platform. Raises Refused for a missing right.
    """
    place: dict[str, Any] = {"pod": command.pod}
    try:
        output = kube.execute(command.namespace, command.pod, command.container, command.words, seconds)
    except (ApiError, Unreachable, NotUnderstood) as error:
        return place | {"error": str(error)}
    return place | {"text": output.stdout, "code": output.code, "error": output.stderr[-_STDERR:] if output.code else ""}


def _noted(measured: _Measured, note: str) -> _Measured:
    verdict = msgspec.structs.replace(measured.verdict, notes=(*measured.verdict.notes, note))
    return msgspec.structs.replace(measured, verdict=verdict)


def _record(context: Context, measured: _Measured) -> None:
    context.record(measured.verdict, observation=measured.observation, diagnosis=measured.diagnosis)


def _nodes_under_test(context: Context, arguments: Arguments) -> tuple[str, ...]:
    nodes = context.expected_nodes(arguments.select)
    for task in arguments.after:
        records = context.store.records(context.environment.run, context.task.stage, task)
        good = {row.node for record in records if record.verdict for row in record.verdict.nodes if row.status is Status.PASS}
        nodes = tuple(node for node in nodes if node in good)
    return nodes


def _create(context: Context, arguments: Arguments, objects: Iterable[dict[str, Any]]) -> _Measured | None:
    """Create the objects in order. Return the result of the check if one was refused, None if all were created."""
    for manifest in objects:
        try:
            if manifest["kind"] in _KEPT:
                context.kube.apply(manifest)
            else:
                _create_one(context, manifest)
        except (ApiError, Refused) as error:
            diagnosis = diagnose_refusal(context, manifest, error)
            return _Measured(verdict=_refusal(arguments, manifest, error), diagnosis=diagnosis)
    return None


def _create_one(context: Context, manifest: dict[str, Any]) -> None:
    """Create an object, waiting for one of an earlier attempt to be deleted."""
    deadline = context.clock.now() + timeouts.JOB_DELETE
    while True:
        try:
            context.kube.create(manifest)
            return
        except ApiError as error:
            # 409: an object of an earlier attempt is still being deleted
            if error.status != 409 or context.clock.now() >= deadline:
                raise
        context.clock.pause(timeouts.POLL_FIRST, deadline)


def _refusal(arguments: Arguments, manifest: dict[str, Any], error: ApiError | Refused) -> Verdict:
    kind, next_step = error.failure_class, error.hint  # a right is missing, or the fields are another manager's
    if isinstance(error, ApiError):
        kind, next_step = _REFUSALS.get(error.status, (FailureClass.APPLY, "see the message: a webhook or quota refuses the check"))
    return failed(
        arguments.gate,
        kind,
        seen=f"{manifest['kind']} {manifest['metadata']['name']}: {error}",
        expected="the API server to accept the check's objects",
        next_step=next_step,
        final=True,
    )


def _cleaned(context: Context, arguments: Arguments, objects: Iterable[dict[str, Any]]) -> str:
    """Remove the check's objects; return a text about those that remain. Never raises, so that the verdict is kept."""
    try:
        return _removed(context, arguments, objects)
    except StepError as error:
        return f"the API server did not take the deletion: {error}"


def _removed(context: Context, arguments: Arguments, objects: Iterable[dict[str, Any]]) -> str:
    """Delete the check's objects and pods and wait until the pods are gone, so that no observation sees pods of another attempt.

    Return the names of pods that are still there after `timeouts.JOB_DELETE`; empty if all are gone.
    """
    for manifest in objects:
        if manifest["kind"] in _KEPT:
            continue
        try:
            context.kube.delete(context.kube.path(manifest))
        except ApiError as error:
            if error.status != 404:  # 404: its kind is not served, so there is nothing to remove
                raise
    pods = f"/api/v1/namespaces/{arguments.namespace}/pods"
    deadline = context.clock.now() + timeouts.JOB_DELETE
    remaining: list[str] = []
    for check in arguments.checks:
        label = f"{CHECK_LABEL}={check}"
        if context.kube.list(pods, target.IdentifiedObject, labels=label):
            context.kube.delete_all(pods, label)
        while (pods_left := context.kube.list(pods, target.IdentifiedObject, labels=label)) and context.clock.now() < deadline:
            context.clock.pause(timeouts.POLL_FIRST, deadline)
        remaining += [pod.metadata.name for pod in pods_left or ()]
    more = f" and {len(remaining) - _NAMED} more" if len(remaining) > _NAMED else ""
    return f"pods {', '.join(remaining[:_NAMED])}{more}" if remaining else ""
