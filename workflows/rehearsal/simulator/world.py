"""What a role has in hand: the cluster, virtual time, chance, the fleet, what was done to its hosts, and the faults in force."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from steps.contract.fleet import Host
from workflows.rehearsal.faults import registry
from workflows.rehearsal.simulator.api import Api
from workflows.rehearsal.simulator.clock import Clock
from workflows.rehearsal.simulator.cluster import Cluster
from workflows.rehearsal.simulator.fleet import Fleet, Hardware
from workflows.rehearsal.simulator.kinds import EVENTS, Kind, Obj, Ref, ref
from workflows.rehearsal.simulator.kubelet_port import KubeletPort

SAMPLE_ABOVE = 300
"""Fleets above this many hosts get pods of a DaemonSet only on sampled and on disturbed nodes (see `workloads`)."""

SAMPLE_EVERY = 20
"""In such a fleet every 20th node is in the sample."""


_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class World(Cluster):
    """The simulated world. Roles change it only by the write methods of `Cluster`, by `later`, and by `hosts`.

    `hosts[NAME]` is a JSON-able dict of what was done to a machine (plays write it under their playbook's name); it is part of the
    snapshot. Everything else that must survive a restart belongs into API objects, from which `reconcile` derives what is pending.
    """

    def __init__(
        self,
        api: Api,
        kinds: Iterable[Kind],
        fleet: Fleet,
        clock: Clock,
        *,
        seed: int = 1,
        delay_scale: float = 1.0,
        jitter: float = 1.0,
    ) -> None:
        super().__init__(api, kinds)
        self.fleet = fleet
        self.clock = clock
        self.seed = seed
        self.delay_scale = delay_scale
        self.jitter = jitter
        self.kubeconfig = ""
        self.git_root: Path | None = None
        self.kubelets: KubeletPort | None = None
        self.lease_ahead = 3600.0
        """Virtual seconds by which leases of nodes are renewed ahead: renewing each every 10 s, as real kubelets do, would at 1,000
        nodes cost more than all else together."""
        self.hosts: dict[str, dict[str, Any]] = {host.name: {} for host in fleet}
        self._active: dict[str, registry.Active] = {}
        self._woken = False

    # ---- time and chance -----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the epoch."""
        return self.clock.now

    def stamp(self, offset: float = 0.0) -> str:
        """Virtual time as Kubernetes writes it."""
        return self.clock.stamp(offset)

    def later(self, key: str, low: float, high: float, action: Callable[[], None]) -> None:
        """Run `action` once after `low` to `high` virtual seconds; a pending `key` is not scheduled twice.

        The action must look at the world again: what it was meant for may have changed or gone.
        """
        self.clock.schedule(key, self.delay(key, low, high), action)

    def delay(self, key: str, low: float, high: float) -> float:
        """A delay that depends only on seed and key, so that the order of requests does not change it."""
        share = 0.5 + (self.chance(key) - 0.5) * self.jitter
        return (low + (high - low) * share) * self.delay_scale

    def chance(self, key: str) -> float:
        """A number in [0, 1) that belongs to this key; UIDs in it do not count, as no two runs have the same."""
        return random.Random(f"{self.seed}:{_UID.sub('', key)}").random()

    # ---- machines ------------------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """The record of a machine."""
        return self.fleet.host(name)

    def hardware(self, name: str) -> Hardware:
        """What a machine has."""
        return self.fleet.hardware(name)

    def sampled(self, node: str) -> bool:
        """Whether a node gets its DaemonSet pods as objects; always true in small fleets."""
        return len(self.fleet) <= SAMPLE_ABOVE or self.fleet.number(node) % SAMPLE_EVERY == 0

    def wake(self) -> None:
        """Have every role look at everything again, because something outside the API changed (a host, a fault)."""
        self._woken = True

    def take_wake(self) -> bool:
        """Whether `wake` was called since the last call."""
        woken, self._woken = self._woken, False
        return woken

    # ---- faults --------------------------------------------------------------------------------------------------------------

    def fault(self, name: str, node: str = "") -> registry.Active | None:
        """The fault, if it is in force and hits this node (without a node: in force at all). UnknownFault for a wrong name."""
        registry.find(name)
        active = self._active.get(name)
        return active if active is not None and active.hits(node) else None

    @property
    def faults(self) -> tuple[registry.Active, ...]:
        """All faults in force."""
        return tuple(self._active.values())

    def set_faults(self, wanted: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        """Put exactly these faults in force. Without nodes a fault hits its default victims."""
        self._active = {}
        for name, nodes in wanted:
            fault = registry.find(name)
            unknown = [node for node in nodes if node not in self.fleet]
            if unknown:
                raise registry.UnknownFault(f"fault {name}: the fleet has no host {', '.join(unknown)}")
            victims = nodes or self.fleet.pick(fault.node)
            if fault.node and not victims:
                raise registry.UnknownFault(f"fault {name} needs {fault.node}, and the fleet has no such host")
            self._active[name] = registry.Active(fault, victims)
        self.wake()

    # ---- small things many roles do --------------------------------------------------------------------------------------------

    def condition(self, obj: Obj, kind: str, status: str, reason: str, message: str = "", *, timed: bool = True) -> list[Obj]:
        """The object's status conditions with this one set; its transition time moves only when its status does."""
        present = list(obj.get("status", {}).get("conditions", ()))
        known = next((entry for entry in present if entry["type"] == kind), None)
        made = {"type": kind, "status": status, "reason": reason, "message": message}
        if timed:
            same = known is not None and known["status"] == status and "lastTransitionTime" in known
            made["lastTransitionTime"] = known["lastTransitionTime"] if known is not None and same else self.stamp()
        if known is None:
            return [*present, made]
        return [made if entry is known else entry for entry in present]

    def event(self, kind: Kind, obj: Obj, reason: str, message: str, *, warning: bool = False) -> None:
        """Write a core/v1 Event about an object; the same reason and message about it is written once."""
        at = ref(obj)
        namespace = at.namespace or "default"
        digest = f"{random.Random(f'{at}:{reason}:{message}').getrandbits(64):016x}"
        body = {
            "metadata": {"name": f"{at.name[:200]}.{digest}", "namespace": namespace},
            "involvedObject": {
                "kind": kind.kind,
                "name": at.name,
                "namespace": at.namespace,
                "uid": obj["metadata"].get("uid", ""),
            },
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "firstTimestamp": self.stamp(),
            "lastTimestamp": self.stamp(),
            "count": 1,
            "source": {"component": "simulated"},
        }
        self.create_soon(EVENTS, body)

    def bind_pod(self, pod: Obj, node: str) -> None:
        """Bind a pod to a node, as schedulers do, together with this instant's other writes."""
        self.bind(pod, node, self.stamp())

    def log(self, pod: Obj, container: str, text: str) -> None:
        """Give a container's log to the kubelets' port where there is one, else to the emulated API server (`Api.write_log`)."""
        if text and self.kubelets is not None:
            self.kubelets.write(pod, container, text)
        elif text:
            self.api.write_log(Ref(pod["metadata"]["namespace"], pod["metadata"]["name"]), container, text)
