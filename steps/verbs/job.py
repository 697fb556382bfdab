"""Verb job: a functional gate: starts check pods in the target, waits for what they say, judges it, and cleans up."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from steps import timeouts
from steps.clients.kube_http import ApiError
from steps.contract.evidence import Diagnosis
from steps.contract.exit import ExitCode
from steps.contract.verdict import FailureClass, Status, Verdict, failed, passed
from steps.probes.diagnosis_objects import Meta
from steps.probes.reader import Scope
from steps.verbs import gating, reuse, target, watching
from steps.verbs.context import Context
from steps.verbs.diagnose import diagnose

CHECK_LABEL = "bringup/check"
_KEPT = ("Namespace", "ServiceAccount")


class Arguments(Struct, frozen=True, kw_only=True):
    """`objects` are created in order with their markers replaced (see `fill`); their pods carry the label `bringup/check` with one
    of `checks`. Only nodes that passed the stage's `after` tasks take part, and there must be `least` of them."""

    gate: str
    objects: tuple[dict[str, Any], ...]
    checks: tuple[str, ...]
    namespace: str = "bringup-check"
    select: str = "gpu"
    after: tuple[str, ...] = ()
    least: int = 1
    namespaces: tuple[str, ...] = ()


class Named(Struct, frozen=True):
    """A pod that still exists."""

    metadata: Meta = Meta()


def run(context: Context) -> ExitCode:
    """Run the check; the verdict is data for the judge, so this ends with 0 once the record is written."""
    wanted = context.arguments(Arguments)
    nodes = _nodes_under_test(context, wanted)
    if len(nodes) < wanted.least:
        context.record(_too_few(wanted, nodes))
        context.output("verdict", Status.SKIPPED.value)
        return ExitCode.OK
    target.claim(context)
    if _reused(context, wanted, nodes):
        return ExitCode.OK
    gate, probe = gating.find(wanted.gate), gating.probe(wanted.gate)
    want = gate.expect(context.task.expectations, nodes)

    objects = [fill(manifest, nodes) for manifest in wanted.objects]
    _remove(context, wanted, objects)
    try:
        verdict = _create(context, wanted, objects)
        since, observation = context.clock.now(), None
        if verdict is None:

            def look() -> tuple[Any, Verdict]:
                now = context.clock.now()
                seen = probe(context.kube, Scope(nodes=nodes, arguments=context.task.arguments, now=now, since=since))
                return seen, gate.decide(seen, want)

            watched = watching.until_decided(look, context.clock, context.task.deadline_seconds)
            verdict, observation = watched.verdict, watched.observation
        found = () if verdict.is_pass else _look_closer(context, wanted, verdict)
    finally:
        _remove(context, wanted, objects)
    context.record(verdict, observation=observation, diagnosis=found)
    context.output("verdict", verdict.status.value)
    return ExitCode.OK


def _reused(context: Context, wanted: Arguments, nodes: tuple[str, ...]) -> bool:
    """Take an earlier run's pass of this very check where this run found the stage unchanged: a platform in use has no free
    GPUs for checks."""
    earlier = reuse.earlier(context)
    if earlier is None or earlier.verdict is None or not reuse.stage_is_reused(context):
        return False
    rows = tuple(row for row in earlier.verdict.nodes if row.node in nodes)
    if len(rows) < len(nodes) and earlier.verdict.nodes:
        return False
    context.record(passed(wanted.gate, f"unchanged since run {earlier.run}: {earlier.verdict.reason}", rows), reused=earlier.run)
    context.output("verdict", Status.PASS.value)
    return True


def fill(value: Any, nodes: tuple[str, ...]) -> Any:
    """The same data with the markers replaced: `"@count"` by the number of nodes, `"@count_text"` by it as text (environment
    variables are texts), `"@nodes"` by the list of their names."""
    if isinstance(value, dict):
        return {key: fill(item, nodes) for key, item in value.items()}
    if isinstance(value, list):
        return [fill(item, nodes) for item in value]
    markers = {"@count": len(nodes), "@count_text": str(len(nodes)), "@nodes": list(nodes)}
    return markers.get(value, value) if isinstance(value, str) else value


def _nodes_under_test(context: Context, wanted: Arguments) -> tuple[str, ...]:
    nodes = context.expected_nodes(wanted.select)
    for task in wanted.after:
        records = context.store.records(context.environment.run, context.task.stage, task)
        good = {row.node for record in records if record.verdict for row in record.verdict.nodes if row.status is Status.PASS}
        nodes = tuple(node for node in nodes if node in good)
    return nodes


def _too_few(wanted: Arguments, nodes: tuple[str, ...]) -> Verdict:
    return Verdict(
        gate=wanted.gate,
        status=Status.SKIPPED,
        reason=f"not run: {len(nodes)} nodes passed the gates before it, {wanted.least} are needed",
    )


def _create(context: Context, wanted: Arguments, objects: Iterable[dict[str, Any]]) -> Verdict | None:
    for manifest in objects:
        try:
            if manifest["kind"] in _KEPT:
                context.kube.apply(manifest)
            else:
                context.kube.create(manifest)
        except ApiError as error:
            return failed(
                wanted.gate,
                FailureClass.DEPENDENCY if error.status == 404 else FailureClass.APPLY,
                seen=f"{manifest['kind']} {manifest['metadata']['name']}: {error}",
                expected="the API server to accept the check's objects",
                next_step="see the message: a CRD, a webhook or a quota refuses the check",
                final=True,
            )
    return None


def _look_closer(context: Context, wanted: Arguments, verdict: Verdict) -> tuple[Diagnosis, ...]:
    """What the check's pods and their nodes show, before the pods are deleted."""
    spaces = (wanted.namespace, *wanted.namespaces)
    return diagnose(context.kube, spaces, verdict, checks=wanted.checks, check_namespace=wanted.namespace)


def _remove(context: Context, wanted: Arguments, objects: Iterable[dict[str, Any]]) -> None:
    """Delete the check's objects and pods and wait until the pods are gone, so that no look sees those of another attempt."""
    for manifest in objects:
        if manifest["kind"] in _KEPT:
            continue
        try:
            context.kube.delete(context.kube.path(manifest))
        except ApiError as error:
            if error.status != 404:  # 404: its kind is not served, so there is nothing to remove
                raise
    pods = f"/api/v1/namespaces/{wanted.namespace}/pods"
    deadline = context.clock.now() + timeouts.JOB_DELETE
    for check in wanted.checks:
        label = f"{CHECK_LABEL}={check}"
        if context.kube.list(pods, Named, labels=label):
            context.kube.delete_all(pods, label)
        while context.kube.list(pods, Named, labels=label) and context.clock.now() < deadline:
            context.clock.pause(timeouts.POLL_FIRST, deadline)
