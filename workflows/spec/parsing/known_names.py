"""Meanings of values that a field does not take: a topic out of scope, another spelling, or a product without facts.

Errors about closed lists of names ask this module first, since the most similar accepted name is often the wrong advice: an
`MI300X` is no misspelt `B300`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from workflows.spec.accelerators import NEWEST_PATCH, PRODUCTS
from workflows.spec.parsing import out_of_scope

Meaning = tuple[str, str] | None
"""Problem and fix; None if nothing is known about a value."""

_OTHER_ACCELERATORS = re.compile(
    r"\b(mi\d{2,3}[a-z]?|instinct|radeon|rocm|amd|gaudi\d?|hl-?\d+|ponte|intel|xeon|tpu|v[456][ep]|trainium\d?|inferentia\d?|ascend|"
    r"910[bc]?|cerebras|groq|graphcore|ipu)\b"
)
_OTHER_NVIDIA = re.compile(
    r"^(k80|p100|p40|p4|v100s?|t4|l4|l40|l20|l2|a2|a10g?|a16|a30x?|a40|a800|h20|h800|h100[ _-]?pcie|h200[ _-]?nvl|b100|"
    r"gh200|gb300|gb10|rtx.*|quadro.*|titan.*|geforce.*|thor|orin|spark|rubin.*|vr200|tesla.*)$"
)
_NOISE = re.compile(r"nvidia|tesla|hgx|dgx|sxm\d?|hbm\d?e?|gpu|[\s_-]")
_MEMORY = re.compile(r"(?<=h100)80gb|(?<=h200)141gb|(?<=b200)1[89]\dgb|(?<=b300)2\d\dgb|(?<=l40s)48gb")
_RELEASE = re.compile(r"v?(1)\.(\d+)(?:\.(\d+))?(?:[+_-]?rke2r?(\d+))?\Z")


def meaning(path: str, value: str) -> Meaning:
    """Return what is wrong with a value at a dotted path of a spec, and what to write instead; None if nothing is known of it."""
    # host groups may have the sections accelerator and sharing too
    read = _BY_PATH.get(re.sub(r"\[\d+\]|^hosts\.[a-z0-9_]+\.", "", path))
    return read(value.strip().lower()) if read and value else None


def _product(name: str) -> Meaning:
    if _OTHER_ACCELERATORS.search(name):
        return _refused("amd"), f"remove accelerator, or choose one of NVIDIA's: {', '.join(PRODUCTS)}"
    short = _MEMORY.sub("", _NOISE.sub("", name))
    exact = [product for product in PRODUCTS if _NOISE.sub("", product.lower()) == short]
    if exact:
        return "bringup writes this product in another way", f"write {exact[0]}"
    sizes = [product for product in PRODUCTS if product.lower().startswith(f"{short}-")]
    if sizes:
        return "this product has variants with different MIG profiles and floors", f"write {' or '.join(sizes)}"
    if _OTHER_NVIDIA.match(name.removeprefix("nvidia").strip(" -_")):
        known = f"bringup has no facts about {name.upper()} (driver, MIG profiles, floors), so no gate could judge it"
        return known, f"choose one of {', '.join(PRODUCTS)}"
    return None


def _release(text: str) -> Meaning:
    if "k3s" in text or "k0s" in text:
        return _refused("k3s"), "write an RKE2 release, as in v1.35.7+rke2r1"
    match = _RELEASE.match(text)
    if match is None:
        return None
    minor, patch = int(match[2]), match[3]
    if patch is None and minor not in NEWEST_PATCH:
        return f"Kubernetes 1.{minor} is no minor that bringup knows", f"use one of 1.{', 1.'.join(map(str, NEWEST_PATCH))}"
    chosen = patch if patch is not None else str(NEWEST_PATCH[minor])
    return "an RKE2 release names its patch and its revision", f"write v1.{minor}.{chosen}+rke2r{match[4] or 1}"


def _table(meanings: Mapping[str, tuple[str, str]]) -> Callable[[str], Meaning]:
    return lambda value: meanings.get(re.sub(r"[\s_-]", "", value))


def _refused(key: str) -> str:
    topic = out_of_scope.find(key)
    return topic.sentence if topic else ""


def _spelt(names: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {other: ("bringup writes this in another way", f"write {name}") for other, name in names.items()}


_OTHER_FABRIC = "bringup knows InfiniBand and RoCE fabrics: its gates read RDMA devices of NVIDIA's NICs"
_NO_FABRIC = (_OTHER_FABRIC, "write none: nodes are then joined by their ordinary network, without RDMA")
_STORAGE = (_refused("ceph"), "install it before, and write provisioner: existing with its storage_class")
_OTHER_SYSTEM = (
    "bringup's node profile has no packages and checks for this system",
    "use ubuntu, debian, rhel, rocky, almalinux or sles",
)
_OTHER_GANG = ("bringup has no gates for this scheduler", "write volcano or kai; gangs matter for jobs of several pods only")
_KUEUE_ALONE = ("bringup writes quotas for Kueue only", "write kueue, or none and queues of your own")
_OTHER_SLURM = ("bringup runs Slurm on Kubernetes by Slinky or SUNK", "write slinky (open source), or sunk with your repository")
_NO_GANG = ("Kueue counts quota, and is no gang scheduler here", "write quota: kueue; and gang: volcano or kai if wanted")

_FABRICS = ["efa", "omnipath", "opa", "slingshot", "iwarp", "tcp", "cornelis"]
_SYSTEMS = ["centos", "centosstream", "fedora", "opensuse", "oracle", "ol", "amzn", "flatcar", "talos", "arch", "windows"]
_STORES = ["ceph", "rook", "rookceph", "longhorn", "lustre", "weka", "beegfs", "vast", "nfs", "gpfs"]
_SHARED = {"timeslicing": "time_slicing", "timeslice": "time_slicing", "whole": "none", "exclusive": "none"}

_BY_PATH: Mapping[str, Callable[[str], Meaning]] = {
    "accelerator.product": _product,
    "rke2.version": _release,
    "fabric.kind": _table(
        dict.fromkeys(_FABRICS, _NO_FABRIC)
        | dict.fromkeys(("ethernet", "eth"), (_OTHER_FABRIC, "write roce if its NICs do RDMA, else none"))
        | _spelt({"ib": "infiniband", "rocev2": "roce", "rdma": "infiniband or roce, whichever the ports are", "no": "none"})
    ),
    "os.distribution": _table(
        dict.fromkeys(_SYSTEMS, _OTHER_SYSTEM)
        | _spelt({"redhat": "rhel", "rockylinux": "rocky", "alma": "almalinux", "suse": "sles", "sle": "sles"})
    ),
    "base_services.storage.provisioner": _table(
        dict.fromkeys(_STORES, _STORAGE) | _spelt({"localpath": "local_path", "localpathprovisioner": "local_path"})
    ),
    "scheduler.gang": _table(
        dict.fromkeys(("yunikorn", "coscheduling", "schedulerplugins"), _OTHER_GANG)
        | {"kueue": _NO_GANG}
        | _spelt({"kaischeduler": "kai", "runai": "kai"})
    ),
    "scheduler.quota": _table(dict.fromkeys(("volcano", "kai"), _KUEUE_ALONE)),
    "slurm.kind": _table(
        dict.fromkeys(("soperator", "slurmbridge", "native", "slurm", "baremetal"), _OTHER_SLURM)
        | _spelt({"slurmoperator": "slinky", "slinkyslurm": "slinky", "coreweave": "sunk"})
    ),
    "sharing.mode": _table(_spelt(_SHARED)),
}
