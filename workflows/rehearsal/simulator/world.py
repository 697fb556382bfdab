"""The world that all roles of the simulator share: objects, virtual time, fleet, hosts and faults; and the list of roles."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import random
import re
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from steps.contract.fleet import Host
from workflows.rehearsal.faults import fault_registry
from workflows.rehearsal.faults.fault_registry import STAGES
from workflows.rehearsal.simulator.api.api_client import Api
from workflows.rehearsal.simulator.api.api_kinds import EVENTS, NODES, Obj, ObjectKind, Ref, annotations_of, ref
from workflows.rehearsal.simulator.api.cluster_view import ClusterView
from workflows.rehearsal.simulator.machines.kubelet_port import KubeletPort
from workflows.rehearsal.simulator.machines.simulated_fleet import HardwareProfile, SimulatedFleet
from workflows.rehearsal.simulator.virtual_clock import VirtualClock, stamp

SAMPLE_ABOVE = 300
"""Number of hosts above which DaemonSet pods are objects only on sampled and disturbed nodes (see `workload_controllers`)."""

SAMPLE_EVERY = 20
"""In a fleet that is sampled, each node whose number is a multiple of this is in the sample."""


_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class World(ClusterView):
    """Everything that roles see and change. They change it only by the write methods of `ClusterView`, by `later`, and by `hosts`.

    `hosts[NAME]` is a JSON-able dict with what playbooks did to a machine, under the playbook's name; snapshots contain it. Other
    state that must survive a restart belongs into API objects, from which `reconcile` derives what is pending.
    """

    def __init__(
        self,
        api: Api,
        kinds: Iterable[ObjectKind],
        fleet: SimulatedFleet,
        clock: VirtualClock,
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
        """Virtual seconds by which node leases are renewed ahead.

        To renew each every 10 s, as real kubelets do, would cost more than everything else together at 1,000 nodes.
        """
        self.hosts: dict[str, dict[str, Any]] = {host.name: {} for host in fleet}
        self._active: dict[str, fault_registry.ActiveFault] = {}
        self._woken = False

    # ---- time and chance -----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The virtual time in seconds since the epoch."""
        return self.clock.now

    def stamp(self) -> str:
        """Return the virtual time as a Kubernetes timestamp."""
        return stamp(self.now)

    def later(self, key: str, low: float, high: float, action: Callable[[], None]) -> None:
        """Run `action` once, after `low` to `high` virtual seconds; do nothing if an action is pending under `key`.

        The action must look at the world again, because its object may have changed or gone.
        """
        self.clock.schedule(key, self.delay(key, low, high), action)

    def delay(self, key: str, low: float, high: float) -> float:
        """Return a delay between `low` and `high` virtual seconds, changed by jitter and delay scale.

        It depends on seed and key only, so that the order of requests does not change it.
        """
        share = 0.5 + (self.chance(key) - 0.5) * self.jitter
        return (low + (high - low) * share) * self.delay_scale

    def chance(self, key: str) -> float:
        """Return a number in [0, 1) from seed and key. UIDs in the key are ignored, because they differ between runs."""
        return random.Random(f"{self.seed}:{_UID.sub('', key)}").random()

    # ---- machines ------------------------------------------------------------------------------------------------------------

    def host(self, name: str) -> Host:
        """Return the host with this name as the run expects it. Raises KeyError if the fleet has none."""
        return self.fleet.host(name)

    def hardware(self, name: str) -> HardwareProfile:
        """Return the hardware of the machine with this name. Raises KeyError if its accelerator has no profile."""
        return self.fleet.hardware(name)

    def sampled(self, node: str) -> bool:
        """Return True if DaemonSet pods on the node are objects; in fleets of at most `SAMPLE_ABOVE` hosts they always are."""
        return len(self.fleet) <= SAMPLE_ABOVE or self.fleet.number(node) % SAMPLE_EVERY == 0

    def wake(self) -> None:
        """Have every role look at everything again, because a host or a fault changed, which no API object shows."""
        self._woken = True

    def take_wake(self) -> bool:
        """Return True if `wake` was called since the last call of this method."""
        woken, self._woken = self._woken, False
        return woken

    # ---- faults --------------------------------------------------------------------------------------------------------------

    def fault(self, name: str, node: str = "") -> fault_registry.ActiveFault | None:
        """Return the fault `name` if active and hitting `node` (empty: any), else None. Raises UnknownFault for an unknown name."""
        fault_registry.find_fault(name)
        active = self._active.get(name)
        return active if active is not None and active.hits(node) else None

    @property
    def faults(self) -> tuple[fault_registry.ActiveFault, ...]:
        """All faults that are active now, with their victims."""
        return tuple(self._active.values())

    def set_faults(self, wanted: Iterable[tuple[str, tuple[str, ...]]]) -> None:
        """Make exactly these faults active; each is a name with its victims, or with none for its default victims.

        Raises UnknownFault for an unknown fault or victim, or if the fleet has no default victim.
        """
        self._active = {}
        for name, nodes in wanted:
            fault = fault_registry.find_fault(name)
            unknown = [node for node in nodes if node not in self.fleet]
            if unknown:
                raise fault_registry.UnknownFault(f"fault {name}: the fleet has no host {', '.join(unknown)}")
            victims = nodes or self.fleet.pick(fault.node)
            if fault.node and not victims:
                raise fault_registry.UnknownFault(f"fault {name} needs {fault.node}, and the fleet has no such host")
            self._active[name] = fault_registry.ActiveFault(fault, victims)
        self.wake()

    # ---- conditions, events, logs ----------------------------------------------------------------------------------------------

    def conditions(self, obj: Obj, *changes: tuple[str, str, str, str], timed: bool = True) -> list[Obj]:
        """Return an object's status conditions with `changes`, each a type, status, reason and message, applied.

        A transition time changes only with its condition's status. With `timed` false, changed conditions have none.
        """
        conditions = {entry["type"]: entry for entry in obj.get("status", {}).get("conditions", ())}
        for kind, status, reason, message in changes:
            before = conditions.get(kind, {})
            since = before.get("lastTransitionTime") if before.get("status") == status else None
            conditions[kind] = {"type": kind, "status": status, "reason": reason, "message": message}
            if timed:
                conditions[kind]["lastTransitionTime"] = since or self.stamp()
        return list(conditions.values())

    def set_condition(self, kind: ObjectKind, obj: Obj, name: str, status: str, reason: str, message: str = "") -> Obj | None:
        """Set one status condition of an object and return the object, or None if it is gone."""
        conditions = self.conditions(obj, (name, status, reason, message))
        return self.patch(kind, obj, {"status": {"conditions": conditions}}, status=True)

    def patch_node(self, name: str, change: Obj, *, status: bool = False) -> None:
        """Queue a JSON merge patch of the Node `name`; do nothing if it does not exist."""
        if self.find(NODES, name) is not None:
            self.patch_soon(NODES, Ref("", name), change, status=status)

    def node_annotations(self, name: str) -> dict[str, str]:
        """Return the annotations of the Node `name`; empty if it does not exist."""
        node = self.find(NODES, name)
        return annotations_of(node) if node else {}

    def event(self, kind: ObjectKind, obj: Obj, reason: str, message: str, *, warning: bool = False) -> None:
        """Queue a core/v1 Event about an object, unless it has one with this reason and message already."""
        at = ref(obj)
        namespace = at.namespace or "default"
        digest = f"{random.Random(f'{at}:{reason}:{message}').getrandbits(64):016x}"
        body = {
            "metadata": {"name": f"{at.name[:200]}.{digest}", "namespace": namespace},
            "involvedObject": {"kind": kind.kind, "name": at.name, "namespace": at.namespace}
            | {"uid": obj["metadata"].get("uid", "")},
            "reason": reason,
            "message": message,
            "type": "Warning" if warning else "Normal",
            "firstTimestamp": self.stamp(),
            "lastTimestamp": self.stamp(),
            "count": 1,
            "source": {"component": "simulated"},
        }
        self.create_soon(EVENTS, body)

    def log(self, pod: Obj, container: str, text: str) -> None:
        """Append to a container's log, in the kubelet port if there is one, else in the emulated API server."""
        if text and self.kubelets is not None:
            self.kubelets.write(pod, container, text)
        elif text:
            self.api.write_log(ref(pod), container, text)


class Changes:
    """The objects that changed since a role was last called.

    `everything` is true on the first call and after a host or a fault changed: the role must then look at all objects.
    """

    def __init__(self, refs: Mapping[ObjectKind, Set[Ref]], everything: bool = False) -> None:
        self._refs = refs
        self.everything = everything

    def refs(self, kind: ObjectKind) -> tuple[Ref, ...]:
        """Return the created, changed and removed objects of a kind, sorted by namespace and name."""
        return tuple(sorted(self._refs.get(kind, ())))

    def concern(self, *kinds: ObjectKind) -> bool:
        """Return True if an object of one of these kinds changed, or if everything must be looked at."""
        return self.everything or any(self._refs.get(kind) for kind in kinds)


class SimulatorRole(Protocol):
    """One actor of the simulator: a controller, an operator, or all kubelets. The simulator calls `reconcile` after changes.

    Actors that a real cluster has itself are switched off by name.
    """

    @property
    def name(self) -> str:
        """The name by which `--roles-off` switches the role off."""

    @property
    def kinds(self) -> tuple[ObjectKind, ...]:
        """The kinds of objects whose changes make the simulator call the role. Empty means all kinds that any role names."""

    def reconcile(self, world: World, changed: Changes, /) -> None:
        """Compare actual and desired state; write the next step, or schedule it with `world.later`.

        Reconciling is level-triggered: a second call must change nothing, and after a restart a call must find pending steps.
        """


CORE = (
    "controllers.namespaces",
    "charts.helm_controller",
    "charts.argo_cd",
    "controllers.workload_controllers",
    "controllers.jobs",
    "controllers.scheduler",
    "controllers.kubelets",
)
"""Modules whose roles are in every Kubernetes cluster, or install charts."""


def load_roles(off: Set[str] = frozenset()) -> tuple[SimulatorRole, ...]:
    """Return all roles but those named in `off`, in the order in which they are called. Raises ValueError for an unknown name.

    They are the classes in `ROLES` of the modules of `CORE` and of each stage. The import also registers playbooks, charts, checks
    and pod programs.
    """
    modules = [importlib.import_module(f"{__package__}.{name}") for name in CORE]
    modules += [module for stage in STAGES if (module := _stage_module(stage)) is not None]
    makers: list[Callable[[], SimulatorRole]] = [maker for module in modules for maker in getattr(module, "ROLES", ())]
    every = [maker() for maker in makers]
    unknown = off - {role.name for role in every}
    if unknown:
        raise ValueError(f"no role {', '.join(sorted(unknown))}: there are {', '.join(role.name for role in every)}")
    return tuple(role for role in every if role.name not in off)


def _stage_module(stage: str) -> ModuleType | None:
    """Import the modules that play a stage and return the one with its roles; return None if the stage is not simulated.

    This is `stages/STAGE.py`, or `stages/STAGE/STAGE.py` for a stage of several modules. The others of such a folder are imported
    too, because they may register playbooks, charts, checks and pod programs.
    """
    name = f"{__package__}.stages.{stage}"
    spec = importlib.util.find_spec(name)
    if spec is None:
        return None
    if spec.submodule_search_locations is None:
        return importlib.import_module(name)
    with_roles = importlib.import_module(f"{name}.{stage}")
    for part in pkgutil.iter_modules(spec.submodule_search_locations):
        importlib.import_module(f"{name}.{part.name}")
    return with_roles
