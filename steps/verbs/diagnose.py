"""Collects what a person would look at next when a verdict is no pass, the nearest to the failure first."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from steps.contract.evidence import Diagnosis
from steps.contract.play import HostOutcome, HostStatus
from steps.contract.verdict import Status, Verdict
from steps.errors import BadTask, Conflict, Refused, StepError, Temporary
from steps.probes import diagnosis
from steps.probes.diagnosis import Findings
from steps.probes.diagnosis_objects import Meta
from steps.probes.reader import KubeReader
from steps.verbs.target import LEASE

if TYPE_CHECKING:
    from steps.clients.kube.client import Kube
    from steps.verbs.context import Context

MOST_NODES = 8
MOST_HOSTS = 20
MOST_FIELDS = 30
"""Fields named of one field manager."""
_CHECKS, _PODS, _NODES = 80_000, 125_000, 150_000
"""Bytes up to which these parts may fill a record, one after the other, so that each has some."""
_HIDDEN = frozenset({"managedFields", "selfLink"})
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def diagnose(
    kube: KubeReader, namespaces: Iterable[str], verdict: Verdict, *, checks: Iterable[str] = (), check_namespace: str = ""
) -> tuple[Diagnosis, ...]:
    """What the failing nodes, the check's pods and the namespaces of a failing stage show. A read that fails is itself noted,
    never raised. To be called while the check's pods are still there: their logs go with them."""
    found, failing, checks = Findings(kube), _failing(verdict), tuple(checks)
    spaces = tuple(dict.fromkeys(space for space in (*namespaces, check_namespace) if space))
    found.most = _CHECKS
    diagnosis.check_pods(found, check_namespace, checks, failing)
    found.most = _PODS
    for space in spaces:
        diagnosis.pods(found, space, failing, leave=checks)
    diagnosis.installs(found)
    found.most = _NODES
    for node in failing:
        diagnosis.node(found, node)
    found.most = diagnosis.MOST_BYTES
    for space in spaces:
        diagnosis.warnings(found, space)
        diagnosis.services(found, space)
        diagnosis.certificates(found, space)
    return found.entries()


def _failing(verdict: Verdict) -> tuple[str, ...]:
    """The first nodes that did not pass; those that failed before those that could not be told."""
    rows = [row for row in verdict.nodes if row.status in (Status.FAIL, Status.INCONCLUSIVE)]
    rows.sort(key=lambda row: row.status is not Status.FAIL)
    return tuple(row.node for row in rows[:MOST_NODES])


def diagnose_play(outcomes: Iterable[HostOutcome], verdict: Verdict | None = None) -> tuple[Diagnosis, ...]:
    """What a play showed of the hosts that failed in it, and of those that it finished and the verdict does not pass: task,
    kind of failure, message, counts, and the facts that the gate judged."""
    named = {row.node for row in verdict.nodes if row.status is not Status.PASS} if verdict is not None else set()
    bad = [one for one in outcomes if one.status is not HostStatus.OK or one.host in named]
    bad.sort(key=lambda one: one.status is HostStatus.OK)
    shown = [Diagnosis(what="play", source=f"host {one.host}", content=_host(one)) for one in bad[:MOST_HOSTS]]
    if len(bad) > MOST_HOSTS:
        names = " ".join(one.host for one in bad[MOST_HOSTS : MOST_HOSTS + diagnosis.MOST_LINES])
        shown.append(Diagnosis(what="more hosts", source="play", content=f"{len(bad) - MOST_HOSTS}: {names}"))
    return tuple(shown)


def _host(one: HostOutcome) -> str:
    kind = f" ({one.kind.value})" if one.kind is not None else ""
    return "\n".join(
        [
            f"{one.status.value}{kind}, {one.done} tasks done, {one.changed} changed",
            *([f"task {one.task}"] if one.task else []),
            *([diagnosis.end(one.message)] if one.message else []),
            *([diagnosis.end("\n".join(diagnosis.flat(one.facts, "facts")))] if one.facts else []),
        ]
    )


# ---- refused writes ------------------------------------------------------------------------------------------------------------


class Phase(Struct, frozen=True):
    """A namespace's phase: `Terminating` refuses everything new."""

    phase: str = ""


class Namespace(Struct, frozen=True):
    """A namespace."""

    status: Phase = Phase()


class QuotaStatus(Struct, frozen=True):
    """What is allowed and what is in use, by resource."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class Quota(Struct, frozen=True):
    """A ResourceQuota."""

    metadata: Meta = Meta()
    status: QuotaStatus = QuotaStatus()


_WEBHOOK = re.compile(r"https://[a-z0-9-]+\.([a-z0-9-]+)\.svc\b")
"""How the API server names the Service of a webhook that it could not call; the group is its namespace."""


def diagnose_refusal(context: "Context", manifest: dict[str, Any], error: StepError) -> tuple[Diagnosis, ...]:
    """What stands in the way of a refused write: the answer, who we are to the API server where it denies a right, the live object
    without what is secret or bulky, who manages which of its fields, its namespace's phase and quotas, and the webhook that the
    answer names. A read that fails is itself noted, never raised."""
    kube, meta = context.kube, manifest["metadata"]
    found = Findings(kube)
    name = f"{manifest['kind']} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"
    found.add("answer of the API server", name, diagnosis.end(str(error)))
    if isinstance(error, Refused) and not isinstance(error, Conflict):
        _account(found, kube)
    live = found.read(name, lambda: (kube.get(kube.path(manifest), dict),))
    if live is not None:
        found.add("live object", name, _object(live[0]) if live[0] is not None else "it does not exist")
        found.add("field managers", name, _managers(live[0] or {}))
    space = str(meta.get("namespace", ""))
    if space:
        held = found.read(f"namespace {space}", lambda: (kube.get(f"/api/v1/namespaces/{space}", Namespace),))
        if held is not None:
            found.add("namespace", space, f"phase {held[0].status.phase}" if held[0] is not None else "it does not exist")
        _quotas(found, space)
    _webhooks(found, str(error))
    return found.entries()


def _account(found: Findings, kube: "Kube") -> None:
    """Who we are to the API server: a SelfSubjectReview, which every account may ask for and which changes nothing."""
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview", "metadata": {"name": "bringup"}}
    answer = found.read("who we are to the API server", lambda: kube.create(asked))
    if answer is not None:
        user = answer.get("status", {}).get("userInfo", {})
        found.add("account", "the API server's answer", f"{user.get('username', '?')}, groups {', '.join(user.get('groups', ()))}")


def _quotas(found: Findings, space: str) -> None:
    """A quota that is used up refuses as a missing right does: with 403."""
    for one in found.list(f"quotas of {space}", f"/api/v1/namespaces/{space}/resourcequotas", Quota):
        lines = [f"{what}: {one.status.used.get(what, '?')} of {most}" for what, most in sorted(one.status.hard.items())]
        found.add("quota", f"ResourceQuota {space}/{one.metadata.name}", "\n".join(lines))


def _webhooks(found: Findings, answer: str) -> None:
    """What stands behind a webhook that could not be called or said no: pods, Services and certificates of its namespace."""
    for space in dict.fromkeys(_WEBHOOK.findall(answer)):
        diagnosis.pods(found, space, ())
        diagnosis.warnings(found, space)
        diagnosis.services(found, space)
        diagnosis.certificates(found, space)


def _object(live: dict[str, Any]) -> str:
    """The object's fields, one a line; of a Secret only the keys."""
    meta = {key: value for key, value in _mapping(live, "metadata").items() if key not in _HIDDEN}
    meta["annotations"] = {key: value for key, value in _mapping(meta, "annotations").items() if key != _LAST_APPLIED}
    shown = {**live, "metadata": meta}
    if live.get("kind") == "Secret":
        shown |= {part: sorted(live[part]) for part in ("data", "stringData") if isinstance(live.get(part), dict)}
    lines = diagnosis.flat(shown)
    return diagnosis.begin("\n".join(lines), 20_000)


def _mapping(live: dict[str, Any], part: str) -> dict[str, Any]:
    """A diagnosis never raises, whatever answers in the API server's place."""
    found = live.get(part)
    return found if isinstance(found, dict) else {}


def _managers(live: dict[str, Any]) -> str:
    entries = _mapping(live, "metadata").get("managedFields") or ()
    return "\n".join(
        f"{one.get('manager', '?')} ({one.get('operation', '?')}"
        f"{', ' + one['subresource'] if one.get('subresource') else ''}, {one.get('time', 'no time')}): "
        f"{', '.join(_fields(one.get('fieldsV1') or {})[:MOST_FIELDS])}"
        for one in entries
    )


def _fields(owned: dict[str, Any], path: str = "") -> list[str]:
    """Paths of the fields that a manager owns: leaves of fieldsV1."""
    inner = {key: value for key, value in owned.items() if key != "."}
    if not inner:
        return [path] if path else []
    return [field for key, value in inner.items() for field in _fields(value, f"{path}.{key.partition(':')[2]}")]


# ---- tasks that ended without their verdict ------------------------------------------------------------------------------------


def diagnose_error(context: "Context", error: StepError) -> tuple[Diagnosis, ...]:
    """What can still be read where an error ended a task before its verdict, or why nothing can be. Never raises.

    Of a bad task: what it was given. Else of the target: whether it is ready, who we are to it and who holds it; where it does not
    answer, one try without waiting, because the engine will start the task again.
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
    found = Findings(kube)
    ready = found.read("readiness of the API server", lambda: kube.text("/readyz?verbose") or "it serves no /readyz")
    if ready is not None:
        found.add("readiness", "API server", diagnosis.end(ready))
    if not isinstance(error, Temporary):
        _account(found, kube)
        held = found.read("lease of the target", lambda: (kube.get(LEASE, dict),))
        if held is not None:
            found.add("lease", "kube-system/bringup", _object(held[0]) if held[0] is not None else "nobody holds the target")
    if ready is not None:
        _webhooks(found, str(error))
    return found.entries()


def _given(context: "Context") -> tuple[Diagnosis, ...]:
    """The files that a task was given, by name and size: of secrets the content is nobody's business."""
    here, shown = context.environment, []
    for folder in (here.tasks, here.fleet, here.secrets):
        files = sorted(path for path in folder.glob("*") if path.is_file()) if folder.is_dir() else []
        lines = [f"{path.name} {path.stat().st_size} bytes" for path in files[: diagnosis.MOST_LINES]]
        more = [f"and {len(files) - len(lines)} more"] if len(files) > len(lines) else []
        text = "\n".join([*lines, *more]) or ("it is empty" if folder.is_dir() else "there is no such folder")
        shown.append(Diagnosis(what="given files", source=folder.name, content=text))
    return tuple(shown)
