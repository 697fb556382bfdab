"""Where a pod may run: the scheduler's rules as pure functions over plain objects; gang schedulers use them too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workflows.rehearsal.simulator import pods
from workflows.rehearsal.simulator.kinds import Obj

_SUFFIXES = {
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


ELSEWHERE = "node(s) didn't match Pod's node affinity/selector"


def quantity(text: object) -> float:
    """A Kubernetes quantity as a number: `500m` → 0.5, `2Gi` → 2147483648. ValueError for anything else."""
    value = str(text)
    for width in (2, 1):
        if len(value) > width and value[-width:] in _SUFFIXES:
            return float(value[:-width]) * _SUFFIXES[value[-width:]]
    return float(value)


def requests(pod: Obj) -> dict[str, float]:
    """What a pod asks of its node: the sum over its containers, at least the largest init container, and one pod slot."""
    total: dict[str, float] = {"pods": 1.0}
    for container in pod["spec"].get("containers", ()):
        for name, amount in _asked(container).items():
            total[name] = total.get(name, 0.0) + amount
    for container in pod["spec"].get("initContainers") or ():
        for name, amount in _asked(container).items():
            total[name] = max(total.get(name, 0.0), amount)
    return total


def _asked(container: Obj) -> dict[str, float]:
    resources = container.get("resources") or {}
    merged = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {name: quantity(amount) for name, amount in merged.items()}


def tolerates(tolerations: Iterable[Obj], taint: Obj) -> bool:
    """Whether any toleration matches a taint."""
    for entry in tolerations:
        if entry.get("effect") not in (None, "", taint["effect"]):
            continue
        if entry.get("operator", "Equal") == "Exists":
            if not entry.get("key") or entry["key"] == taint["key"]:
                return True
        elif entry.get("key") == taint["key"] and (entry.get("value") or "") == (taint.get("value") or ""):
            return True
    return False


def matches_expressions(labels: Mapping[str, str], expressions: Iterable[Obj]) -> bool:
    """Label selector expressions, with `Gt` and `Lt` as nodes have them."""
    return all(_matches(labels.get(entry["key"]), entry["operator"], entry.get("values") or ()) for entry in expressions)


def _matches(value: str | None, operator: str, values: Iterable[str]) -> bool:
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if value is None:
        return operator == "NotIn"
    if operator in ("In", "NotIn"):
        return (value in values) == (operator == "In")
    number = next(iter(values))
    return int(value) > int(number) if operator == "Gt" else int(value) < int(number)


def selects(selector: Obj | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector (`matchLabels`, `matchExpressions`) takes these labels; none selects nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and matches_expressions(labels, selector.get("matchExpressions") or ())


def _affinity_term(term: Obj, node: Obj) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    return matches_expressions(node["metadata"].get("labels") or {}, term.get("matchExpressions") or ()) and matches_expressions(
        fields, term.get("matchFields") or ()
    )


def pinned(spec: Obj) -> frozenset[str] | None:
    """Names of the only nodes that a pod's affinity allows, as pods made for one node have it; None where it names none."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    terms: list[Obj] = (required or {}).get("nodeSelectorTerms") or [{}]
    names: set[str] = set()
    for term in terms:
        fields = [entry for entry in term.get("matchFields") or () if entry["key"] == "metadata.name" and entry["operator"] == "In"]
        if not fields:
            return None
        names.update(fields[0]["values"])
    return frozenset(names)


def admits(node: Obj, spec: Obj, *, daemon: bool = False) -> str:
    """Why a node does not take pods of this spec whatever runs there; empty when it does. `daemon`: as DaemonSets see it."""
    labels = node["metadata"].get("labels") or {}
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return ELSEWHERE
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    if required and not any(_affinity_term(term, node) for term in required["nodeSelectorTerms"]):
        return ELSEWHERE
    if node["spec"].get("unschedulable") and not daemon:
        return "node(s) were unschedulable"
    for taint in node["spec"].get("taints") or ():
        lenient = taint["effect"] == "PreferNoSchedule" or (daemon and taint["key"].startswith("node.kubernetes.io/"))
        if not lenient and not tolerates(spec.get("tolerations") or (), taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return ""


class Occupancy:
    """What runs where, for one round of scheduling: free resources by node, and which pods with which labels are there."""

    def __init__(self, nodes: Iterable[Obj], running: Iterable[Obj]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.free = {name: _allocatable(node) for name, node in self.nodes.items()}
        self._pods: list[tuple[Obj, str]] = []
        self._anti: list[tuple[Obj, str, str]] = []
        for pod in running:
            if pods.node(pod) in self.nodes and not pods.finished(pod):
                self.add(pod, pods.node(pod))

    def add(self, pod: Obj, node: str) -> None:
        """Count a pod on a node."""
        free = self.free[node]
        for name, amount in requests(pod).items():
            free[name] = free.get(name, 0.0) - amount
        self._pods.append((pod, node))
        self._anti += [(term, pod["metadata"]["namespace"], node) for term in pod_terms(pod, "podAntiAffinity")]

    def short(self, node: str, wanted: Mapping[str, float]) -> str:
        """The first resource that a node lacks for this request; empty when it fits."""
        free = self.free[node]
        return next((name for name, amount in wanted.items() if amount > 0 and free.get(name, 0.0) < amount - 1e-9), "")

    def domains(self, term: Obj, namespace: str) -> set[str]:
        """Values of a (anti-)affinity term's topology key where pods that it selects run."""
        namespaces = set(term.get("namespaces") or (namespace,))
        key = term["topologyKey"]
        found: set[str] = set()
        for pod, node in self._pods:
            meta = pod["metadata"]
            if meta["namespace"] in namespaces and selects(term.get("labelSelector"), meta.get("labels") or {}):
                found.add(domain(self.nodes[node], key))
        return found

    def anti_terms(self) -> list[tuple[Obj, str, str]]:
        """Required anti-affinity terms of running pods, with their namespace and node: they keep matching newcomers away."""
        return list(self._anti)


def domain(node: Obj, key: str) -> str:
    """A node's value of a topology key."""
    return str((node["metadata"].get("labels") or {}).get(key, ""))


def pod_terms(pod: Obj, kind: str) -> list[Any]:
    """Required terms of `podAffinity` or `podAntiAffinity`."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def _allocatable(node: Obj) -> dict[str, float]:
    status = node.get("status") or {}
    return {name: quantity(amount) for name, amount in (status.get("allocatable") or status.get("capacity") or {}).items()}
