"""A simulated default scheduler, and its rules for where a pod may run, as pure functions that gang schedulers use too."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from steps.contract.node_taints import tolerates
from workflows.rehearsal.simulator.api.api_kinds import (
    CLAIM_TEMPLATES,
    NODES,
    PODS,
    RESOURCE_SLICES,
    Obj,
    Ref,
    labels_of,
    owner_uid,
    ref,
)
from workflows.rehearsal.simulator.controllers import device_claims, simulated_pods
from workflows.rehearsal.simulator.controllers.device_claims import DEVICES, SHORT, DeviceClaims
from workflows.rehearsal.simulator.world import Changes, World

_SUFFIXES = {
    "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50,
}  # fmt: skip


ELSEWHERE = "node(s) didn't match Pod's node affinity/selector"


def quantity(text: object) -> float:
    """Return a Kubernetes quantity as a number: `500m` → 0.5, `2Gi` → 2147483648. Raises ValueError for anything else."""
    value = str(text)
    for width in (2, 1):
        if len(value) > width and value[-width:] in _SUFFIXES:
            return float(value[:-width]) * _SUFFIXES[value[-width:]]
    return float(value)


def requests(pod: Obj) -> dict[str, float]:
    """Return the amount of each resource that a pod requests of its node.

    It is the sum over its containers, but at least that of the largest init container, and 1 of `pods`. A limit counts as request
    if there is none.
    """
    total: dict[str, float] = {"pods": 1.0}
    for container in pod["spec"].get("containers", ()):
        for name, amount in container_requests(container).items():
            total[name] = total.get(name, 0.0) + amount
    for container in pod["spec"].get("initContainers") or ():
        for name, amount in container_requests(container).items():
            total[name] = max(total.get(name, 0.0), amount)
    return total


def container_requests(container: Obj) -> dict[str, float]:
    """Return the amount of each resource that a container requests; a limit counts as request if there is none."""
    resources = container.get("resources") or {}
    merged = (resources.get("limits") or {}) | (resources.get("requests") or {})
    return {name: quantity(amount) for name, amount in merged.items()}


def matches_expressions(labels: Mapping[str, str], expressions: Iterable[Obj]) -> bool:
    """Return True if labels match all of a selector's expressions; `Gt` and `Lt` of node selectors are known too."""
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
    """Return True if a label selector matches these labels. A missing selector (None) matches nothing."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items() and matches_expressions(labels, selector.get("matchExpressions") or ())


def _affinity_term(term: Obj, node: Obj) -> bool:
    fields = {"metadata.name": node["metadata"]["name"]}
    return matches_expressions(node["metadata"].get("labels") or {}, term.get("matchExpressions") or ()) and matches_expressions(
        fields, term.get("matchFields") or ()
    )


def node_terms(spec: Obj) -> list[Obj] | None:
    """Return the terms of a pod spec's required node affinity, one of which a node must match; None if it has none."""
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
    return required["nodeSelectorTerms"] if required else None


HOSTNAME = "kubernetes.io/hostname"


def _names_of_term(term: Obj, hosts: Mapping[str, Iterable[str]]) -> set[str] | None:
    """Return the names of the only nodes that a node affinity's term can match, or None if it does not limit them by name.

    `hosts` has the names of nodes by their label `HOSTNAME`.
    """
    for entry in term.get("matchFields") or ():
        if entry["key"] == "metadata.name" and entry["operator"] == "In":
            return set(entry["values"])
    for entry in term.get("matchExpressions") or ():
        if entry["key"] == HOSTNAME and entry["operator"] == "In":
            return {name for value in entry["values"] for name in hosts.get(value, ())}
    return None


def admits(node: Obj, spec: Obj, *, daemon: bool = False) -> str:
    """Return why a node rejects pods with this spec, whatever its load; empty if it accepts them.

    With `daemon`, cordons and the taints that DaemonSets tolerate by default are ignored.
    """
    labels = labels_of(node)
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return ELSEWHERE
    terms = node_terms(spec)
    if terms is not None and not any(_affinity_term(term, node) for term in terms):
        return ELSEWHERE
    if node["spec"].get("unschedulable") and not daemon:
        return "node(s) were unschedulable"
    for taint in node["spec"].get("taints") or ():
        lenient = taint["effect"] == "PreferNoSchedule" or (daemon and taint["key"].startswith("node.kubernetes.io/"))
        if not lenient and not tolerates(spec.get("tolerations") or (), taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    return ""


@dataclass
class _Selected:
    """Topology values of the nodes that have pods of one selector; `read` pods of the occupancy have been looked at."""

    values: set[str] = field(default_factory=set)
    read: int = 0


@dataclass(frozen=True)
class AntiAffinity:
    """A required anti-affinity term of counted pods in one namespace, and the topology values of their nodes."""

    term: Obj
    namespace: str
    values: set[str] = field(default_factory=set)


class Occupancy:
    """The load of all nodes during one scheduling round: `free` resources by node, and the pods that hold the others.

    Thousands of pods have the same affinity rules, so what a rule selects is kept and only extended by later pods.
    """

    def __init__(self, nodes: Iterable[Obj], running: Iterable[Obj], claims: DeviceClaims = DeviceClaims()) -> None:
        self.nodes = {node["metadata"]["name"]: node for node in nodes}
        self.free = {name: _allocatable(node) for name, node in self.nodes.items()}
        self._claims = claims
        for name in claims.on_nodes.keys() & self.free.keys():
            self.free[name][DEVICES] = claims.on_nodes[name]
        self._pods: list[tuple[Obj, str]] = []
        self._selected: dict[str, _Selected] = {}
        self._anti: dict[str, AntiAffinity] = {}
        self._hosts: dict[str, list[str]] = {}
        for name, node in self.nodes.items():
            self._hosts.setdefault(labels_of(node).get(HOSTNAME, ""), []).append(name)
        for pod in running:
            if simulated_pods.node(pod) in self.nodes and not simulated_pods.finished(pod):
                self.add(pod, simulated_pods.node(pod))

    def add(self, pod: Obj, node: str) -> None:
        """Subtract a pod's requests from a node's free resources, and count its affinity rules from now on."""
        free = self.free[node]
        for name, amount in self.wanted(pod).items():
            every = self._claims.on_nodes.get(node, 0)
            free[name] = free.get(name, 0.0) - (amount if amount < math.inf else every)
        self._pods.append((pod, node))
        for term in pod_terms(pod, "podAntiAffinity"):
            namespace = pod["metadata"]["namespace"]
            kept = self._anti.setdefault(f"{namespace} {term}", AntiAffinity(term, namespace))
            kept.values.add(domain(self.nodes[node], term["topologyKey"]))

    def wanted(self, pod: Obj) -> dict[str, float]:
        """Return what a pod requests of its node, and under `DEVICES` what it claims: `math.inf` for all devices of the node."""
        claimed = self._claims.wanted(pod)
        return requests(pod) | ({DEVICES: claimed} if claimed else {})

    def anti_affinities(self) -> Iterable[AntiAffinity]:
        """Return the required anti-affinity terms of the counted pods."""
        return self._anti.values()

    def allowed_nodes(self, spec: Obj) -> Mapping[str, Obj]:
        """Return the nodes to which a pod's node affinity limits it by name, or all nodes."""
        names: set[str] = set()
        for term in node_terms(spec) or [{}]:
            some = _names_of_term(term, self._hosts)
            if some is None:
                return self.nodes
            names |= some
        return {name: self.nodes[name] for name in sorted(names & self.nodes.keys())}

    def short(self, node: str, wanted: Mapping[str, float]) -> str:
        """Return the first resource of which a node has less free than `wanted`; empty if the request fits."""
        free, every = self.free[node], max(self._claims.on_nodes.get(node, 0), 1)
        amounts = ((name, amount if amount < math.inf else every) for name, amount in wanted.items())
        return next((name for name, amount in amounts if amount > 0 and free.get(name, 0.0) < amount - 1e-9), "")

    def domains(self, term: Obj, namespace: str) -> set[str]:
        """Return the topology values of nodes with pods that `term` selects; `namespace` is that of the pod with the term.

        The set is the occupancy's own: it is read only, and grows with the next call.
        """
        namespaces = set(term.get("namespaces") or (namespace,))
        key = term["topologyKey"]
        kept = self._selected.setdefault(f"{sorted(namespaces)} {term}", _Selected())
        for pod, node in self._pods[kept.read :]:
            meta = pod["metadata"]
            if meta["namespace"] in namespaces and selects(term.get("labelSelector"), meta.get("labels") or {}):
                kept.values.add(domain(self.nodes[node], key))
        kept.read = len(self._pods)
        return kept.values


def domain(node: Obj, key: str) -> str:
    """Return the value of a topology key (a label) on a node; empty if the node lacks it."""
    return str(labels_of(node).get(key, ""))


def pod_terms(pod: Obj, kind: str) -> list[Any]:
    """Return the required terms of a pod's affinity of this kind, `podAffinity` or `podAntiAffinity`."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return list(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ())


def _allocatable(node: Obj) -> dict[str, float]:
    status = node.get("status") or {}
    return {name: quantity(amount) for name, amount in (status.get("allocatable") or status.get("capacity") or {}).items()}


NAME = "default-scheduler"


class DefaultScheduler:
    """Simulated default scheduler. Pods with another `schedulerName` are left to the simulated gang schedulers."""

    name = "scheduler"
    kinds = (PODS, NODES, RESOURCE_SLICES, CLAIM_TEMPLATES)

    def __init__(self) -> None:
        self._waiting: dict[Ref, None] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Assign each waiting pod that fits to a node. Any other gets a PodScheduled condition and waits for the next change."""
        if changed.everything:
            self._waiting = {ref(pod): None for pod in world.objects(PODS) if pending(pod)}
        for at in changed.refs(PODS):
            self._waiting[at] = None
        queue = [pod for at in self._waiting if (pod := world.find(PODS, at)) is not None and pending(pod)]
        self._waiting = {ref(pod): None for pod in queue}
        if not queue:
            return
        occupancy = Occupancy(world.objects(NODES), world.objects(PODS), device_claims.read(world, queue))
        for group in _groups(queue):
            self._place(world, occupancy, group)

    def _place(self, world: World, occupancy: Occupancy, group: list[Obj]) -> None:
        candidates = Candidates(occupancy, group[0])
        for pod in group:
            node = candidates.take(pod)
            if node:
                world.bind(pod, node, world.stamp())
                self._waiting.pop(ref(pod), None)
            else:
                _unschedulable(world, pod, candidates.sentence())


def pending(pod: Obj) -> bool:
    """Return True if a pod waits for the default scheduler: it has no node and is not gated, finished or being deleted."""
    spec, meta = pod["spec"], pod["metadata"]
    return not (
        spec.get("nodeName")
        or simulated_pods.finished(pod)
        or spec.get("schedulingGates")
        or "deletionTimestamp" in meta
        or spec.get("schedulerName", NAME) != NAME
    )


class Candidates:
    """The nodes left for pods that differ in name only. Rules that ignore other pods are evaluated once for all of them."""

    def __init__(self, occupancy: Occupancy, pod: Obj) -> None:
        self._occupancy = occupancy
        self._wanted = occupancy.wanted(pod)
        self._reasons: Counter[str] = Counter()
        self._labels = labels_of(pod)
        self._anti = pod_terms(pod, "podAntiAffinity")
        self._near = pod_terms(pod, "podAffinity")
        self._open: list[str] = []
        named = occupancy.allowed_nodes(pod["spec"])
        if len(named) < len(occupancy.nodes):
            self._reasons[ELSEWHERE] = len(occupancy.nodes) - len(named)
        for name, node in named.items():
            if reason := admits(node, pod["spec"]):
                self._reasons[reason] += 1
            else:
                self._open.append(name)
        self._closed = {str(term): self._occupied(term, pod) for term in self._anti}
        self._repelled = [anti for anti in occupancy.anti_affinities() if self._is_repelled(anti, pod)]

    def take(self, pod: Obj) -> str:
        """Return a node for the pod and count the pod there; empty if none is left.

        A node that is full for one pod of the group is full for the others too and is not tried again.
        """
        rejected: list[str] = []
        chosen = ""
        for position, name in enumerate(self._open):
            reason = self._dynamic(name, pod)
            if not reason:
                chosen, rest = name, self._open[position + 1 :]
                break
            self._reasons[reason] += 1
            if reason == _AFFINITY:
                rejected.append(name)
        else:
            rest = []
        if chosen:
            self._occupancy.add(pod, chosen)
            self._closed = {str(term): self._occupied(term, pod) for term in self._anti}
            rest.append(chosen)  # to the end of the queue, so that pods spread over the nodes
        self._open = rejected + rest
        return chosen

    @property
    def reasons(self) -> Counter[str]:
        """Numbers of nodes by the reason for which they took no more pods."""
        return self._reasons

    def sentence(self) -> str:
        """Return the scheduler's message for a pod without node: `0/8 nodes are available: 3 Insufficient nvidia.com/gpu.`"""
        total = len(self._occupancy.nodes)
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(self._reasons.items()))
        return f"0/{total} nodes are available: {why or 'no nodes'}."

    def _occupied(self, term: Obj, pod: Obj) -> set[str]:
        return self._occupancy.domains(term, pod["metadata"]["namespace"])

    def _is_repelled(self, anti: AntiAffinity, pod: Obj) -> bool:
        spaces = anti.term.get("namespaces") or (anti.namespace,)
        return pod["metadata"]["namespace"] in spaces and selects(anti.term.get("labelSelector"), self._labels)

    def _dynamic(self, name: str, pod: Obj) -> str:
        lacking = self._occupancy.short(name, self._wanted)
        if lacking == DEVICES:
            return SHORT
        if lacking:
            return "Too many pods" if lacking == "pods" else f"Insufficient {lacking}"
        node = self._occupancy.nodes[name]
        for term in self._anti:
            if domain(node, term["topologyKey"]) in self._closed[str(term)]:
                return "node(s) didn't match pod anti-affinity rules"
        if any(domain(node, anti.term["topologyKey"]) in anti.values for anti in self._repelled):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        for term in self._near:
            reached = self._occupied(term, pod)
            first_of_its_kind = not reached and selects(term.get("labelSelector"), self._labels)
            if not first_of_its_kind and domain(node, term["topologyKey"]) not in reached:
                return _AFFINITY
        return ""


_AFFINITY = "node(s) didn't match pod affinity rules"


def _groups(queue: list[Obj]) -> Iterator[list[Obj]]:
    """Yield groups of pods that have one owner and equal demands, so that they can be placed together, sorted by name."""
    groups: dict[str, list[Obj]] = {}
    for pod in sorted(queue, key=ref):
        spec = pod["spec"]
        demands = (spec.get("nodeSelector"), spec.get("affinity"), spec.get("tolerations"), requests(pod))
        groups.setdefault(repr((pod["metadata"]["namespace"], owner_uid(pod), demands)), []).append(pod)
    yield from groups.values()


def _unschedulable(world: World, pod: Obj, message: str) -> None:
    conditions = world.conditions(pod, ("PodScheduled", "False", "Unschedulable", message))
    if world.patch(PODS, pod, {"status": {"phase": "Pending", "conditions": conditions}}, status=True) is not None:
        world.event(PODS, pod, "FailedScheduling", message, warning=True)


ROLES = (DefaultScheduler,)
