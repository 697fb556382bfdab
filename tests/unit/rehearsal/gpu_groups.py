"""Specs whose GPU groups differ: MIG on two nodes, time slicing on one, whole GPUs elsewhere; and one with two products."""

from typing import Any

from tests.unit.rehearsal.small import SMALL


def group(ranges: str, start: str, **sections: Any) -> dict[str, Any]:
    """Return a host group with GPUs as data; `sections` are its own ones, such as `sharing`."""
    return {"role": "agent", "ranges": ranges, "gpu": True, "addresses": {"start": start}, **sections}


MIG = group("mig[1-2]", "10.10.1.1", sharing={"mode": "mig", "profile": "1g.18gb"})
SLICED = group("sliced1", "10.10.1.11", sharing={"mode": "time_slicing", "replicas": 4})
WHOLE = group("whole[1-2]", "10.10.1.21")
OLDER = group(
    "older[1-2]", "10.10.1.31", accelerator={"product": "A100-80GB", "per_node": 4}, taints=["example.org/older=yes:NoSchedule"]
)
BY_GROUP: dict[str, Any] = SMALL | {
    "name": "by-group",
    "hosts": {"servers": SMALL["hosts"]["servers"], "mig": MIG, "sliced": SLICED, "whole": WHOLE},
    "slurm": {"kind": "slinky", "partitions": [{"name": "train", "groups": "whole", "default": True}]},
}
"""Slurm has the group with whole GPUs."""
TWO_PRODUCTS: dict[str, Any] = SMALL | {
    "name": "two-products",
    "hosts": {"servers": SMALL["hosts"]["servers"], "mig": MIG, "sliced": SLICED, "older": OLDER},
    "slurm": {"kind": "none"},
    "scheduler": {
        "gang": "kai",
        "quota": "kueue",
        "queues": [
            {"name": "research", "namespace": "team-a", "gpus_by_group": {"mig": 100, "sliced": 16, "older": 8}},
            {"name": "trials", "namespace": "team-b", "gpus_by_group": {"sliced": 16}},
        ],
    },
    "validation": {"dcgm_level": 2, "nccl": {"inter_node_floor_gb_s": 150}},
}
"""Each product after sharing has a flavor of the quota. A test between nodes runs for the older one alone."""
