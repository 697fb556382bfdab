"""Multus on every node: a pod that asks for secondary networks gets an interface and an address in each, and says so."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from workflows.rehearsal.simulator import pods as podlib
from workflows.rehearsal.simulator.kinds import PODS, Obj, Ref, custom
from workflows.rehearsal.simulator.role import Changed
from workflows.rehearsal.simulator.world import World

ATTACHMENTS = custom("k8s.cni.cncf.io", "NetworkAttachmentDefinition")
ASKED, GIVEN = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"


class Multus:
    """Plays Multus with the address plugin behind it: each pod that is on a node gets its networks at once."""

    name = "multus"
    kinds = (PODS, ATTACHMENTS)

    def reconcile(self, world: World, changed: Changed) -> None:
        """Look at the pods that changed; at all of them when networks did."""
        if changed.everything or changed.refs(ATTACHMENTS):
            chosen = world.objects(PODS)
        else:
            found = (world.find(PODS, at.name, at.namespace) for at in changed.refs(PODS))
            chosen = [pod for pod in found if pod is not None]
        for pod in chosen:
            notes = pod["metadata"].get("annotations") or {}
            if ASKED in notes and GIVEN not in notes and podlib.node(pod):
                _attach(world, pod, notes[ASKED])


def _attach(world: World, pod: Obj, asked: str) -> None:
    places = [_place(pod, part.strip()) for part in asked.split(",") if part.strip()]
    if all(world.find(ATTACHMENTS, place.name, place.namespace) is not None for place in places):
        status = msgspec.json.encode(list(_entries(world, pod, places))).decode()
        world.patch_soon(PODS, pod, {"metadata": {"annotations": {GIVEN: status}}})


def _place(pod: Obj, text: str) -> Ref:
    namespace, _, name = text.partition("@")[0].rpartition("/")
    return Ref(namespace or pod["metadata"]["namespace"], name)


def _entries(world: World, pod: Obj, places: list[Ref]) -> Iterator[Obj]:
    """The cluster's own network first, then one entry an attachment; addresses depend on node and interface only."""
    number = world.fleet.number(podlib.node(pod))
    yield {"name": "k8s-pod-network", "interface": "eth0", "ips": [f"10.42.{number % 256}.9"], "default": True, "dns": {}}
    for index, place in enumerate(places, 1):
        address = f"192.168.{number % 256}.{index}"
        yield {"name": f"{place.namespace}/{place.name}", "interface": f"net{index}", "ips": [address], "dns": {}}
