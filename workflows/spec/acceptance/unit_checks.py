"""The pods by which the sharing of GPUs is proven, as far as numbers of GPUs and the users of GPUs allow it.

A unit is what a pod requests: a GPU, a share or a MIG instance. The stages `sharing` and `gang` build their checks from these
answers, and the list of untested parts names what they leave out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from workflows.spec.cluster_spec import ClusterSpec, advertised, allocatable, has_gpu_cluster, max_pods
from workflows.spec.machines import Machine

MOST_PODS = 64
"""Pods that fill a node at most; with more units each pod takes several, because a kubelet runs 110 pods by default."""
OTHER_PODS = 40
"""Pods of the platform on a node at most. A check pod that waited for one of their places would prove nothing about units."""
MOST_UNITS = 256
"""Units of a node up to which pods can fill it: each needs a container of its own, and all must run at the same time."""
MOST_NAMES = 100
"""Names of machines in the node selection of a check, so that its task stays small."""

HELD_BY_SLURM = "Slurm's node pods hold every GPU, so that the pods of the check can request none"
CLAIMED = "pods claim GPUs as DRA devices, and the check counts units that nodes advertise"
FEW_PODS = "a node takes fewer pods than it has GPUs, which pods claim one by one"


@dataclass(frozen=True, kw_only=True)
class NodeFill:
    """A check that asks a node for more than it has: `pods` with `each` units fill the node, and one more must wait.

    All of them run on one node. It is none of `avoided`, or it is one of `allowed` unless that is empty.
    """

    pods: int
    each: int
    avoided: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()


def unit_counts(spec: ClusterSpec, machines: Sequence[Machine]) -> dict[str, int]:
    """Return GPU machine → number of units of a pool's spec; with DRA a unit is a GPU."""
    per_gpu = max(allocatable(spec, 1).values(), default=1)
    return {machine.name: machine.gpus * per_gpu for machine in machines if machine.gpu}


def is_claimed(spec: ClusterSpec) -> bool:
    """Return True if pods get GPUs by DRA claims alone, so that nodes advertise nothing to request."""
    return has_gpu_cluster(spec) or not advertised(spec)


def fill_obstacle(spec: ClusterSpec, counts: dict[str, int]) -> tuple[str, str] | None:
    """Return the key of a pool's spec by which pods cannot fill a node of it, and the reason; None if they can.

    `counts` are the units of its machines; if they are empty, only the users of its GPUs count.
    """
    if spec.slurm.kind != "none":
        return "slurm.kind", HELD_BY_SLURM
    if is_claimed(spec) and not counts:
        return "accelerator.operator_mode" if has_gpu_cluster(spec) else "sharing.mode", CLAIMED
    # each pod has a claim for one device, and a container sees all devices of its claim
    if is_claimed(spec) and node_fill(spec, counts).each > 1:
        return "rke2.kubelet_args", FEW_PODS
    if counts and usual_count(counts) > MOST_UNITS:
        return "sharing.replicas", f"a node has {usual_count(counts)} units, and the check fills at most {MOST_UNITS}"
    return None


def usual_count(counts: dict[str, int]) -> int:
    """Return the number of units that most machines have; of two that are equally frequent the larger."""
    often = Counter(counts.values())
    return max(often, key=lambda units: (often[units], units))


def node_fill(spec: ClusterSpec, counts: dict[str, int]) -> NodeFill:
    """Return the pods that fill one of the machines with the usual number of units.

    All pods are equally large, because a scheduler that placed a smaller one first would leave a larger one waiting for it.
    """
    units, most = usual_count(counts), max(min(MOST_PODS, max_pods(spec) - OTHER_PODS), 1)
    each = next(size for size in range(1, units + 1) if units % size == 0 and units // size <= most)
    usual = [name for name, count in counts.items() if count == units]
    others = [name for name, count in counts.items() if count != units]
    few = len(others) <= MOST_NAMES
    return NodeFill(
        pods=units // each,
        each=each,
        avoided=tuple(others) if few else (),
        allowed=() if few else tuple(usual[:MOST_NAMES]),
    )


def single_units(counts: dict[str, int]) -> tuple[str, ...]:
    """Return the machines with one unit, on which no two pods can hold one each."""
    return tuple(name for name, count in counts.items() if count < 2)
