"""Generated cluster specs that are valid and together show every pair of choices that can be combined.

A choice is one value of one axis (who installs the driver, kind of fabric, …). A spec takes one value of each axis. Each new spec
is the one of several random candidates that shows the most pairs not shown yet; the spec's models and the catalog's rules reject
candidates that are no valid specs. The choices are kept in `pairwise_specs.json`, since making them takes half a minute. Run this
module (`python -m tests.unit.rehearsal.pairwise_specs`) to write them anew after a rule or an axis has changed.
"""

import functools
import itertools
import json
import random
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.unit.rehearsal.small import SMALL
from workflows import catalog
from workflows.spec import ClusterSpec, SpecErrors, load

FILE = Path(__file__).with_suffix(".json")
COUNT = 48
SEED = 20261129
CANDIDATES = 24
"""Candidates for each pair that is aimed at."""
ATTEMPTS = 100
"""Candidates without a valid one after which a pair counts as impossible."""

NO_MODE = "no_mode"
"""Value of axis `mode` of a spec without a fabric, and of no other one."""
AXES: Mapping[str, tuple[str, ...]] = {
    "driver": ("operator", "host"),
    "fabric": ("none", "infiniband", "roce"),
    "mode": (NO_MODE, "rdma_shared", "sriov", "host_device", "ipoib", "macvlan"),
    "sharing": ("none", "time_slicing", "mps", "mig_single", "mig_mixed", "dra"),
    "gang": ("none", "volcano", "kai"),
    "quota": ("none", "kueue"),
    "slurm": ("none", "slinky", "sunk"),
    "delivery": ("helm_controller", "argo_cd"),
    "servers": ("1", "3"),
    "operator_mode": ("cluster_policy", "gpu_cluster"),
}
"""Values of each axis."""

Choice = Mapping[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]


def document(choice: Choice, *, floor: bool) -> dict[str, Any]:
    """Return a spec as data, with one value of each axis and with or without a floor between nodes; it may not be valid."""
    shared_pods = choice["sharing"] in ("time_slicing", "mps")
    sharing: dict[str, Any] = {"mode": choice["sharing"].partition("_")[0] if "mig" in choice["sharing"] else choice["sharing"]}
    sharing |= {"replicas": 4} if shared_pods else {}
    if sharing["mode"] == "mig":
        sharing |= {"profile": "1g.18gb", "strategy": choice["sharing"].removeprefix("mig_")}
    scheduler: dict[str, Any] = {"gang": choice["gang"]}
    if choice["quota"] == "kueue":
        scheduler |= {"quota": "kueue", "queues": [{"name": "research", "namespace": "team-a", "gpus": 16}]}
        if choice["operator_mode"] == "gpu_cluster":
            scheduler |= {"flavor": {"node_labels": {"bringup/group": "gpu"}}}
    accelerator = {"product": "H200", "driver": choice["driver"], "operator_mode": choice["operator_mode"]}
    accelerator |= {"driver_version": "580.126.20"} if choice["driver"] == "host" else {}
    ranges = "sv1" if choice["servers"] == "1" else "sv[1-3]"
    return SMALL | {
        "name": "pairwise",
        "hosts": SMALL["hosts"] | {"servers": SMALL["hosts"]["servers"] | {"ranges": ranges}},
        "accelerator": accelerator,
        "fabric": _fabric(choice),
        "sharing": sharing,
        "scheduler": scheduler,
        "slurm": _slurm(choice["slurm"]),
        "delivery": _delivery(choice["delivery"]),
        "validation": {"dcgm_level": 1, "nccl": {"inter_node_floor_gb_s": 350}} if floor else {"dcgm_level": 1},
    }


def _fabric(choice: Choice) -> dict[str, Any]:
    kind, mode = choice["fabric"], choice["mode"]
    if kind == "none":
        return {"kind": "none"}
    fabric: dict[str, Any] = {"kind": kind, "mode": mode, "nics_per_node": 8, "rate_gbit": 400}
    fabric |= {"resource_name": "sriov_rdma"} if mode == "sriov" else {"resource_name": "hostdev"} if mode == "host_device" else {}
    fabric |= {"interfaces": ["ibs1" if kind == "infiniband" else "ens1"]} if mode in ("ipoib", "macvlan") else {}
    return fabric | ({} if mode == "rdma_shared" else {"ip_pool": {"subnet": "192.168.0.0/16"}})


def _slurm(kind: str) -> dict[str, Any]:
    if kind == "none":
        return {"kind": "none"}
    partitions: dict[str, Any] = {"partitions": [{"name": "train", "groups": "gpu", "default": True}]}
    if kind == "slinky":
        return {"kind": kind, **partitions}
    return {"kind": kind, **partitions, "repo": "oci://registry.example.org/sunk", "version": "7.3.0"}


def _delivery(mode: str) -> dict[str, Any]:
    if mode == "helm_controller":
        return {"mode": mode}
    return {"mode": mode, "argo_cd": {"repo": "https://git.example.org/platform/apps.git", "revision": "v1", "project": "platform"}}


@functools.cache
def _spec(choice: tuple[tuple[str, str], ...]) -> ClusterSpec | str:
    """Return the spec of a choice, or why it is not valid. Some specs need a floor between nodes, and some may not have one."""
    problem = ""
    if (dict(choice)["fabric"] == "none") != (dict(choice)["mode"] == NO_MODE):
        return "a mode belongs to a fabric"
    for floor in (True, False):
        try:
            spec = load(json.dumps(document(dict(choice), floor=floor), indent=1))  # JSON is YAML, and quicker to write
        except SpecErrors as errors:
            problem = str(errors)
            continue
        problem = "; ".join(issue.problem for issue in catalog.check(spec, catalog.load()) if issue.severity == "error")
        if not problem:
            return spec
    return problem


def spec_of(choice: Choice) -> ClusterSpec:
    """Return the spec of a choice. Raises ValueError with the reason if it is not valid."""
    spec = _spec(tuple(choice.items()))
    if isinstance(spec, str):
        raise ValueError(spec)
    return spec


def pairs(choice: Choice) -> Iterator[Pair]:
    """Yield every pair of values that a choice has."""
    return itertools.combinations(choice.items(), 2)


def choices() -> list[Choice]:
    """Return the choices of the file."""
    return [dict(zip(AXES, words.split(), strict=True)) for words in json.loads(FILE.read_text())]


def title(choice: Choice) -> str:
    """Return the values of a choice in one line."""
    return " ".join(choice.values())


def generated(seed: int = SEED, count: int = COUNT) -> tuple[Choice, ...]:
    """Return `count` valid choices that together have every pair of values that some valid choice has."""
    chance = random.Random(seed)
    every = [{first: one, second: other} for first, second in itertools.combinations(AXES, 2)
             for one in AXES[first] for other in AXES[second]]  # fmt: skip
    open_pairs = {pair for both in every for pair in pairs(both)}
    chosen: list[Choice] = []
    while len(chosen) < count:
        target = chance.choice(sorted(open_pairs)) if open_pairs else ()
        candidates = list(_candidates(chance, dict(target)))
        if not candidates:
            open_pairs.discard(target)
            continue
        best = max(candidates, key=lambda choice: len(open_pairs & set(pairs(choice))))
        open_pairs -= set(pairs(best))
        chosen.append(best)
    assert not open_pairs, f"{count} specs leave {len(open_pairs)} pairs out: {sorted(open_pairs)}"
    return tuple(chosen)


def _candidates(chance: random.Random, fixed: Choice) -> Iterator[Choice]:
    valid = 0
    for attempt in range(ATTEMPTS):
        choice = {axis: fixed.get(axis) or chance.choice(values) for axis, values in AXES.items()}
        if choice["fabric"] == "none" and "mode" not in fixed:
            choice["mode"] = NO_MODE
        if isinstance(_spec(tuple(choice.items())), ClusterSpec):
            yield choice
            valid += 1
        if valid >= CANDIDATES or (attempt >= CANDIDATES * 2 and valid):
            return


if __name__ == "__main__":
    FILE.write_text(json.dumps([title(choice) for choice in generated()], indent=0) + "\n")
    sys.stdout.write(f"wrote {FILE}\n")
