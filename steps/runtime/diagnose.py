"""Diagnosis of a verdict that is no pass: collects what an administrator would look at next, the nearest to the failure first."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from steps.contract.host_play import HostOutcome, HostStatus
from steps.contract.runs.evidence import Diagnosis
from steps.contract.task import Verb
from steps.contract.verdict import Status, Verdict, failed, inconclusive
from steps.errors import BadTask, Conflict, Refused, StepError, Temporary
from steps.runtime import diagnosis
from steps.runtime.context import Context
from steps.runtime.diagnosis import Findings
from steps.runtime.diagnosis_objects import ShownMeta
from steps.runtime.target import LEASE
from steps.stages.shared.kube_reader import KubeReader

if TYPE_CHECKING:
    from steps.clients.kube.client import Kube

MOST_NODES = 8
MOST_HOSTS = 20
MOST_FIELDS = 30
"""Largest number of fields that are listed of one field manager."""
_CHECKS, _PODS, _NODES = 80_000, 125_000, 150_000
"""Sizes in bytes up to which check pods, then pods, then nodes may fill a record, so that each of them gets a share."""
_HIDDEN = frozenset({"managedFields", "selfLink"})
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def diagnose(
    kube: KubeReader, namespaces: Iterable[str], verdict: Verdict, *, checks: Iterable[str] = (), check_namespace: str = ""
) -> tuple[Diagnosis, ...]:
    """Return findings about failing nodes, the check's pods and the namespaces of a failing stage.

    A failed read becomes a finding and is never raised. Call this while the check's pods exist: their logs are deleted with them.
    """
    findings, failing, checks = Findings(kube), _failing(verdict), tuple(checks)
    spaces = tuple(dict.fromkeys(space for space in (*namespaces, check_namespace) if space))
    findings.most = _CHECKS
    diagnosis.check_pods(findings, check_namespace, checks, failing)
    findings.most = _PODS
    for space in spaces:
        diagnosis.pods(findings, space, failing, leave=checks)
    diagnosis.installs(findings)
    findings.most = _NODES
    for node in failing:
        diagnosis.node(findings, node)
    findings.most = diagnosis.MOST_BYTES
    for space in spaces:
        diagnosis.warnings(findings, space)
        diagnosis.services(findings, space)
        diagnosis.certificates(findings, space)
    return findings.entries()


def _failing(verdict: Verdict) -> tuple[str, ...]:
    """Return the names of at most `MOST_NODES` nodes that did not pass: failed ones before inconclusive ones."""
    rows = [row for row in verdict.nodes if row.status in (Status.FAIL, Status.INCONCLUSIVE)]
    rows.sort(key=lambda row: row.status is not Status.FAIL)
    return tuple(row.node for row in rows[:MOST_NODES])


def diagnose_play(outcomes: Iterable[HostOutcome], verdict: Verdict | None = None) -> tuple[Diagnosis, ...]:
    """Return findings about the hosts that failed in a play or that the verdict does not pass.

    Each finding has task, kind of failure, message, counts, and the facts that the gate judged.
    """
    named = {row.node for row in verdict.nodes if row.status is not Status.PASS} if verdict is not None else set()
    bad = [outcome for outcome in outcomes if outcome.status is not HostStatus.OK or outcome.host in named]
    bad.sort(key=lambda outcome: outcome.status is HostStatus.OK)
    findings = [Diagnosis(what="play", source=f"host {outcome.host}", content=_host(outcome)) for outcome in bad[:MOST_HOSTS]]
    if len(bad) > MOST_HOSTS:
        names = " ".join(outcome.host for outcome in bad[MOST_HOSTS : MOST_HOSTS + diagnosis.MOST_LINES])
        findings.append(Diagnosis(what="more hosts", source="play", content=f"{len(bad) - MOST_HOSTS}: {names}"))
    return tuple(findings)


def _host(outcome: HostOutcome) -> str:
    kind = f" ({outcome.kind.value})" if outcome.kind is not None else ""
    return "\n".join(
        [
            f"{outcome.status.value}{kind}, {outcome.done} tasks done, {outcome.changed} changed",
            *([f"task {outcome.task}"] if outcome.task else []),
            *([diagnosis.end(outcome.message)] if outcome.message else []),
            *([diagnosis.end("\n".join(diagnosis.flat(outcome.facts, "facts")))] if outcome.facts else []),
        ]
    )


# ---- refused writes ------------------------------------------------------------------------------------------------------------


class _NamespacePhase(Struct, frozen=True):
    """Phase of a namespace. `Terminating` refuses everything new."""

    phase: str = ""


class _Namespace(Struct, frozen=True):
    status: _NamespacePhase = _NamespacePhase()


class _QuotaStatus(Struct, frozen=True):
    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class _Quota(Struct, frozen=True):
    metadata: ShownMeta = ShownMeta()
    status: _QuotaStatus = _QuotaStatus()


_WEBHOOK = re.compile(r"https://[a-z0-9-]+\.([a-z0-9-]+)\.svc\b")
"""Address by which the API server names a webhook that it could not call; the group is the namespace of its Service."""


def diagnose_refusal(context: Context, manifest: dict[str, Any], error: StepError) -> tuple[Diagnosis, ...]:
    """Return findings about an object that the API server refused to write.

    These are the API server's answer, the account that bringup uses if a right was denied, the live object without secret or bulky
    parts, its field managers, phase and quotas of its namespace, and the webhook that the answer names. A failed read becomes a
    finding and is never raised.
    """
    kube, meta = context.kube, manifest["metadata"]
    findings = Findings(kube)
    name = f"{manifest['kind']} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"
    findings.add("answer of the API server", name, diagnosis.end(str(error)))
    # a Conflict is about field managers, not about rights
    if isinstance(error, Refused) and not isinstance(error, Conflict):
        _account(findings, kube)
    live = findings.read(name, lambda: (kube.get(kube.path(manifest), dict),))
    if live is not None:
        findings.add("live object", name, _object(live[0]) if live[0] is not None else "it does not exist")
        findings.add("field managers", name, _managers(live[0] or {}))
    space = str(meta.get("namespace", ""))
    if space:
        answer = findings.read(f"namespace {space}", lambda: (kube.get(f"/api/v1/namespaces/{space}", _Namespace),))
        if answer is not None:
            findings.add("namespace", space, f"phase {answer[0].status.phase}" if answer[0] is not None else "it does not exist")
        _quotas(findings, space)
    _webhooks(findings, str(error))
    return findings.entries()


def _account(findings: Findings, kube: "Kube") -> None:
    """Add bringup's account at the API server, by a SelfSubjectReview: every account may create one, and it changes nothing."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "bringup"}}
    answer = findings.read("who we are to the API server", lambda: kube.create(review))
    if answer is not None:
        user = answer.get("status", {}).get("userInfo", {})
        findings.add(
            "account", "the API server's answer", f"{user.get('username', '?')}, groups {', '.join(user.get('groups', ()))}"
        )


def _quotas(findings: Findings, space: str) -> None:
    """Add the quotas of a namespace. An exhausted quota refuses with 403, like a missing right."""
    for quota in findings.list(f"quotas of {space}", f"/api/v1/namespaces/{space}/resourcequotas", _Quota):
        lines = [f"{what}: {quota.status.used.get(what, '?')} of {most}" for what, most in sorted(quota.status.hard.items())]
        findings.add("quota", f"ResourceQuota {space}/{quota.metadata.name}", "\n".join(lines))


def _webhooks(findings: Findings, answer: str) -> None:
    """Add pods, Services and certificates in the namespace of a webhook that refused or could not be called."""
    for space in dict.fromkeys(_WEBHOOK.findall(answer)):
        diagnosis.pods(findings, space, ())
        diagnosis.warnings(findings, space)
        diagnosis.services(findings, space)
        diagnosis.certificates(findings, space)


def _object(live: dict[str, Any]) -> str:
    """Return the object's fields, one a line; of a Secret only the keys."""
    meta = {key: value for key, value in _mapping(live, "metadata").items() if key not in _HIDDEN}
    meta["annotations"] = {key: value for key, value in _mapping(meta, "annotations").items() if key != _LAST_APPLIED}
    fields = {**live, "metadata": meta}
    # only the keys: values of Secrets must not get into evidence
    if live.get("kind") == "Secret":
        fields |= {part: sorted(live[part]) for part in ("data", "stringData") if isinstance(live.get(part), dict)}
    lines = diagnosis.flat(fields)
    return diagnosis.begin("\n".join(lines), 20_000)


def _mapping(live: dict[str, Any], part: str) -> dict[str, Any]:
    """Return a part of an object if it is a mapping, else an empty one: a diagnosis must not fail on odd answers."""
    value = live.get(part)
    return value if isinstance(value, dict) else {}


def _managers(live: dict[str, Any]) -> str:
    entries = _mapping(live, "metadata").get("managedFields") or ()
    return "\n".join(
        f"{entry.get('manager', '?')} ({entry.get('operation', '?')}"
        f"{', ' + entry['subresource'] if entry.get('subresource') else ''}, {entry.get('time', 'no time')}): "
        f"{', '.join(_fields(entry.get('fieldsV1') or {})[:MOST_FIELDS])}"
        for entry in entries
    )


def _fields(owned: dict[str, Any], path: str = "") -> list[str]:
    """Return the paths of the fields that a field manager owns, from fieldsV1 in the object's managedFields."""
    inner = {key: value for key, value in owned.items() if key != "."}
    if not inner:
        return [path] if path else []
    return [field for key, value in inner.items() for field in _fields(value, f"{path}.{key.partition(':')[2]}")]


# ---- tasks that ended without their verdict ------------------------------------------------------------------------------------


_DONE_TEXTS = {
    Verb.OPEN: "a run whose plan, fleet and servers fit together",
    Verb.PLAY: "a play that reaches the hosts",
    Verb.APPLY: "a target that takes the objects",
    Verb.ANNOUNCE: "approvers who know that an approval waits",
    Verb.BUILD: "a finished build",
    Verb.PUBLISH: "a finished publication",
    Verb.SEAL: "a sealed run",
    Verb.REPORT: "a written report",
}
"""Verb → the result that was expected, shown in the record of an error; for verbs that judge no gate."""


def record_error(context: Context, error: StepError) -> None:
    """Store the error that ended a task as its verdict, with findings about the cluster.

    Without this record the judge could only say that the task left none. A later attempt supersedes it.
    """
    gate = str(context.task.arguments.get("gate") or context.own_gate)
    expected = _DONE_TEXTS.get(context.task.verb) or f"a verdict of gate {gate}"
    seen, next_step = str(error), error.hint or "read the task's log"
    if isinstance(error, Temporary):
        kind = error.failure_class
        verdict = inconclusive(gate, seen=seen, expected=expected, next_step=next_step, failure_class=kind)
    else:
        verdict = failed(gate, error.failure_class, seen=seen, expected=expected, next_step=next_step, final=True)
    context.record(verdict, error=str(error), diagnosis=diagnose_error(context, error))


def diagnose_error(context: Context, error: StepError) -> tuple[Diagnosis, ...]:
    """Return findings after an error ended a task before its verdict; if nothing can be read, one that says why. Never raises.

    For a bad task they list the files it was given. Otherwise they are about the target: its readiness, bringup's account, and the
    holder of its lease. If the target does not answer there is only one try, because the engine will start the task again.
    """
    if isinstance(error, BadTask):
        return _given(context)
    if not context.kubeconfig().exists():
        why = f"this task has no kubeconfig ({context.kubeconfig().name}), so nothing of a cluster can be read"
        return (Diagnosis(what="nothing read", source="target cluster", content=why), *_given(context))
    try:
        kube = context.kube
    except StepError as unusable:
        return (Diagnosis(what="nothing read", source="target cluster", content=f"its kubeconfig is not usable: {unusable}"),)
    findings = Findings(kube)
    ready = findings.read("readiness of the API server", lambda: kube.text("/readyz?verbose") or "it serves no /readyz")
    if ready is not None:
        findings.add("readiness", "API server", diagnosis.end(ready))
    if not isinstance(error, Temporary):
        _account(findings, kube)
        answer = findings.read("lease of the target", lambda: (kube.get(LEASE, dict),))
        if answer is not None:
            findings.add("lease", "kube-system/bringup", _object(answer[0]) if answer[0] is not None else "nobody holds the target")
    if ready is not None:
        _webhooks(findings, str(error))
    return findings.entries()


def _given(context: Context) -> tuple[Diagnosis, ...]:
    """Return the names and sizes of the files that a task was given. Contents may be secret."""
    here, findings = context.environment, []
    for folder in (here.tasks, here.fleet, here.secrets):
        files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
        lines = [f"{path.name} {path.stat().st_size} bytes" for path in files[: diagnosis.MOST_LINES]]
        more = [f"and {len(files) - len(lines)} more"] if len(files) > len(lines) else []
        text = "\n".join([*lines, *more]) or ("it is empty" if folder.is_dir() else "there is no such folder")
        findings.append(Diagnosis(what="given files", source=folder.name, content=text))
    return tuple(findings)
