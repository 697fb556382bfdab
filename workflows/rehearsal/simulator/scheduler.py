"""The default scheduler: bind pending pods, and say why a pod cannot be placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from workflows.rehearsal.simulator import pod_objects
from workflows.rehearsal.simulator.api_kinds import NODES, PODS, Obj
from workflows.rehearsal.simulator.placement import ELSEWHERE, Occupancy, admits, domain, pinned, pod_terms, requests, selects
from workflows.rehearsal.simulator.role import Changes
from workflows.rehearsal.simulator.world import World

NAME = "default-scheduler"


class DefaultScheduler:
    """The role that places pods whose `schedulerName` is the default; gang schedulers' roles place the others."""

    name = "scheduler"
    kinds = (PODS, NODES)

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], None] = {}

    def reconcile(self, world: World, changed: Changes) -> None:
        """Try every waiting pod. One that fits nowhere gets its PodScheduled condition and waits for the next change."""
        if changed.everything:
            self._waiting = {(p["metadata"]["namespace"], p["metadata"]["name"]): None for p in world.objects(PODS) if pending(p)}
        for at in changed.refs(PODS):
            self._waiting[at] = None
        queue = [
            pod for pod in (world.find(PODS, name, space) for space, name in self._waiting) if pod is not None and pending(pod)
        ]
        self._waiting = {(pod["metadata"]["namespace"], pod["metadata"]["name"]): None for pod in queue}
        if not queue:
            return
        occupancy = Occupancy(world.objects(NODES), world.objects(PODS))
        for group in _groups(queue):
            self._place(world, occupancy, group)

    def _place(self, world: World, occupancy: Occupancy, group: list[Obj]) -> None:
        candidates = Candidates(occupancy, group[0])
        for pod in group:
            node = candidates.take(pod)
            if node:
                world.bind_pod(pod, node)
                self._waiting.pop((pod["metadata"]["namespace"], pod["metadata"]["name"]), None)
            else:
                _unschedulable(world, pod, candidates.sentence())


def pending(pod: Obj) -> bool:
    """Return True if a pod waits for the default scheduler."""
    spec, meta = pod["spec"], pod["metadata"]
    return not (
        spec.get("nodeName")
        or pod_objects.finished(pod)
        or spec.get("schedulingGates")
        or "deletionTimestamp" in meta
        or spec.get("schedulerName", NAME) != NAME
    )


class Candidates:
    """Nodes for pods that differ in name only. Rules that do not depend on other pods are evaluated once."""

    def __init__(self, occupancy: Occupancy, pod: Obj) -> None:
        self._occupancy = occupancy
        self._wanted = requests(pod)
        self._reasons: Counter[str] = Counter()
        self._labels = pod["metadata"].get("labels") or {}
        self._anti = pod_terms(pod, "podAntiAffinity")
        self._near = pod_terms(pod, "podAffinity")
        self._open: list[str] = []
        only = pinned(pod["spec"])
        named = occupancy.nodes if only is None else {name: occupancy.nodes[name] for name in sorted(only & occupancy.nodes.keys())}
        if len(named) < len(occupancy.nodes):
            self._reasons[ELSEWHERE] = len(occupancy.nodes) - len(named)
        for name, node in named.items():
            reason = admits(node, pod["spec"])
            if reason:
                self._reasons[reason] += 1
            else:
                self._open.append(name)
        self._closed = {str(term): self._occupied(term, pod) for term in self._anti}
        self._repelled = self._repelled_by_others(pod)

    def take(self, pod: Obj) -> str:
        """Return the next node for the pod and count it there, or return an empty string.

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
            for term in self._anti:
                if selects(term.get("labelSelector"), self._labels):
                    self._closed[str(term)].add(domain(self._occupancy.nodes[chosen], term["topologyKey"]))
            rest.append(chosen)  # to the end of the queue, so that pods spread over the nodes
        self._open = rejected + rest
        return chosen

    def sentence(self) -> str:
        """Return the message of the scheduler, such as `0/8 nodes are available: 3 Insufficient nvidia.com/gpu.`"""
        total = len(self._occupancy.nodes)
        why = ", ".join(f"{count} {reason}" for reason, count in sorted(self._reasons.items()))
        return f"0/{total} nodes are available: {why or 'no nodes'}."

    def _occupied(self, term: Obj, pod: Obj) -> set[str]:
        return self._occupancy.domains(term, pod["metadata"]["namespace"])

    def _repelled_by_others(self, pod: Obj) -> dict[str, set[str]]:
        """Return domains by topology key from which the anti-affinity of running pods keeps this pod away."""
        domains: dict[str, set[str]] = {}
        for term, namespace, node in self._occupancy.anti_terms():
            spaces = term.get("namespaces") or (namespace,)
            if pod["metadata"]["namespace"] in spaces and selects(term.get("labelSelector"), self._labels):
                domains.setdefault(term["topologyKey"], set()).add(domain(self._occupancy.nodes[node], term["topologyKey"]))
        return domains

    def _dynamic(self, name: str, pod: Obj) -> str:
        lacking = self._occupancy.short(name, self._wanted)
        if lacking:
            return "Too many pods" if lacking == "pods" else f"Insufficient {lacking}"
        node = self._occupancy.nodes[name]
        for term in self._anti:
            if domain(node, term["topologyKey"]) in self._closed[str(term)]:
                return "node(s) didn't match pod anti-affinity rules"
        if any(domain(node, key) in values for key, values in self._repelled.items()):
            return "node(s) didn't satisfy existing pods anti-affinity rules"
        for term in self._near:
            reached = self._occupied(term, pod)
            first_of_its_kind = not reached and selects(term.get("labelSelector"), self._labels)
            if not first_of_its_kind and domain(node, term["topologyKey"]) not in reached:
                return _AFFINITY
        return ""


_AFFINITY = "node(s) didn't match pod affinity rules"


def _groups(queue: list[Obj]) -> Iterator[list[Obj]]:
    """Yield pods of one owner with equal demands, sorted by name."""
    groups: dict[str, list[Obj]] = {}
    for pod in sorted(queue, key=lambda pod: (pod["metadata"]["namespace"], pod["metadata"]["name"])):
        spec = pod["spec"]
        demands = (spec.get("nodeSelector"), spec.get("affinity"), spec.get("tolerations"), requests(pod))
        groups.setdefault(repr((pod["metadata"]["namespace"], pod_objects.owner_uid(pod), demands)), []).append(pod)
    yield from groups.values()


def _unschedulable(world: World, pod: Obj, message: str) -> None:
    conditions = world.condition(pod, "PodScheduled", "False", "Unschedulable", message)
    if world.patch(PODS, pod, {"status": {"phase": "Pending", "conditions": conditions}}, status=True) is not None:
        world.event(PODS, pod, "FailedScheduling", message, warning=True)


ROLES = (DefaultScheduler,)
