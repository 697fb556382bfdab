"""The scheduler's rules for where a pod may run, as pure functions over plain objects; gang schedulers use them too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from workflows.rehearsal.simulator import pod_objects
from workflows.rehearsal.simulator.api_kinds import Obj

_SUFFIXES = {
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


ELSEWHERE = "node(s) didn't match Pod's node affinity/selector"


def quantity(text: object) -> float:
    """Convert a Kubernetes quantity to a number: `500m` → 0.5, `2Gi` → 2147483648. Raises ValueError for anything else."""
    value = str(text)
    for width in (2, 1):
        if len(value) > width and value[-width:] in _SUFFIXES:
            return float(value[:-width]) * _SUFFIXES[value[-width:]]
    return float(value)


def requests(pod: Obj) -> dict[str, float]:
    """Return the resources that a pod requests of its node.

    It is the sum over its containers, at least the largest init container, and one pod slot.
    """
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
    """Return True if any toleration matches the taint."""
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
    """Return True if labels match all selector expressions, including `Gt` and `Lt` of node selectors."""
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
    """Return True if a label selector selects these labels; a missing selector selects nothing."""
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
    """Return the names of the only nodes that a pod's affinity allows, or None if it names none."""
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
    """Return why a node rejects pods of this spec regardless of its load, or an empty string.

    With `daemon`, taints that DaemonSets tolerate by default and cordons are ignored.
    """
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
    """The load of all nodes during one scheduling round: free resources and running pods by node."""

    def __init__(self, nodes: Iterable[Obj], running: Iterable[Obj]) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.free = {name: _allocatable(node) for name, node in self.nodes.items()}
        self._pods: list[tuple[Obj, str]] = []
        self._anti: list[tuple[Obj, str, str]] = []
        for pod in running:
            if pod_objects.node(pod) in self.nodes and not pod_objects.finished(pod):
                self.add(pod, pod_objects.node(pod))

    def add(self, pod: Obj, node: str) -> None:
        """Count a pod on a node."""
        free = self.free[node]
        for name, amount in requests(pod).items():
            free[name] = free.get(name, 0.0) - amount
        self._pods.append((pod, node))
        self._anti += [(term, pod["metadata"]["namespace"], node) for term in pod_terms(pod, "podAntiAffinity")]

    def short(self, node: str, wanted: Mapping[str, float]) -> str:
        """Return the first resource of which a node has too little for a request, or an empty string if it fits."""
        free = self.free[node]
        return next((name for name, amount in wanted.items() if amount > 0 and free.get(name, 0.0) < amount - 1e-9), "")

    def domains(self, term: Obj, namespace: str) -> set[str]:
        """Return the values of an affinity term's topology key on nodes where pods that the term selects run."""
        namespaces = set(term.get("namespaces") or (namespace,))
        key = term["topologyKey"]
        values: set[str] = set()
        for pod, node in self._pods:
            meta = pod["metadata"]
            if meta["namespace"] in namespaces and selects(term.get("labelSelector"), meta.get("labels") or {}):
                values.add(domain(self.nodes[node], key))
        return values

    def anti_terms(self) -> list[tuple[Obj, str, str]]:
        """Return required anti-affinity terms of running pods with namespace and node, which keep matching newcomers away."""
        return list(self._anti)


def domain(node: Obj, key: str) -> str:
    """Return a node's value of a topology key."""
    return str((node["metadata"].get("labels") or {}).get(key, ""))


def pod_terms(pod: Obj, kind: str) -> list[Any]:
    """Return the required terms of `podAffinity` or `podAntiAffinity`."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def _allocatable(node: Obj) -> dict[str, float]:
    status = node.get("status") or {}
    return {name: quantity(amount) for name, amount in (status.get("allocatable") or status.get("capacity") or {}).items()}
