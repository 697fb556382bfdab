"""Collects what a person would look at next when a verdict is no pass, the nearest to the failure first."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from steps.contract.evidence import Diagnosis
from steps.contract.play import HostOutcome, HostStatus
from steps.contract.verdict import Status, Verdict
from steps.probes import diagnosis
from steps.probes.diagnosis import Findings
from steps.probes.reader import KubeReader

if TYPE_CHECKING:
    from steps.clients.kube import Kube

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


def diagnose_refusal(kube: "Kube", manifest: dict[str, Any], error_text: str) -> tuple[Diagnosis, ...]:
    """What stands in the way of a refused write: the live object without what is secret or bulky, who manages which of its
    fields, and its namespace's phase."""
    found, meta = Findings(kube), manifest["metadata"]
    name = f"{manifest['kind']} {'/'.join(filter(None, (meta.get('namespace'), meta['name'])))}"
    found.add("answer of the API server", name, diagnosis.end(error_text))
    live = found.read(name, lambda: (kube.get(kube.path(manifest), dict),))
    if live is not None:
        found.add("live object", name, _object(live[0]) if live[0] is not None else "it does not exist")
        found.add("field managers", name, _managers(live[0] or {}))
    space = str(manifest["metadata"].get("namespace", ""))
    if space:
        held = found.read(f"namespace {space}", lambda: (kube.get(f"/api/v1/namespaces/{space}", Namespace),))
        if held is not None:
            found.add("namespace", space, f"phase {held[0].status.phase}" if held[0] is not None else "it does not exist")
    return found.entries()


def _object(live: dict[str, Any]) -> str:
    """The object's fields, one a line; of a Secret only the keys."""
    meta = {key: value for key, value in live.get("metadata", {}).items() if key not in _HIDDEN}
    meta["annotations"] = {key: value for key, value in meta.get("annotations", {}).items() if key != _LAST_APPLIED}
    shown = {**live, "metadata": meta}
    if live.get("kind") == "Secret":
        shown |= {part: sorted(live[part]) for part in ("data", "stringData") if isinstance(live.get(part), dict)}
    lines = diagnosis.flat(shown)
    return diagnosis.begin("\n".join(lines), 20_000)


def _managers(live: dict[str, Any]) -> str:
    entries = live.get("metadata", {}).get("managedFields") or ()
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
