"""What a node advertises under each sharing configuration, as pure functions (gpu_stack §1.5, §3.1, §3.2)."""

from __future__ import annotations

from typing import Any

import yaml
from msgspec import Struct

from workflows.spec.products import PRODUCTS

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PRODUCT, REPLICAS, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
MIG_STATE, MPS = "nvidia.com/mig.config.state", "nvidia.com/mps.capable"


class Shares(Struct, frozen=True):
    """A configuration of the device plugin. `strategy` is the label's word for it."""

    strategy: str
    replicas: int
    rename: bool
    refuse_two: bool


class Shape(Struct, frozen=True):
    """Resources as quantities, and labels."""

    resources: dict[str, str]
    labels: dict[str, str]


def shares(text: str) -> Shares | None:
    """The shares that a configuration asks for; None for whole GPUs or no configuration."""
    data: Any = yaml.safe_load(text) if text else None
    sharing = data.get("sharing") if isinstance(data, dict) else None
    for key, word in (("timeSlicing", "time-slicing"), ("mps", "mps")):
        if sharing and key in sharing:
            part = sharing[key]
            refuse = part.get("failRequestsGreaterThanOne", False) or key == "mps"
            return Shares(word, part["resources"][0]["replicas"], part.get("renameByDefault", False), refuse)
    return None


def whole_shape(product: str, gpus: int) -> Shape:
    """GPUs that nobody divides."""
    labels = {PRODUCT: product, REPLICAS: "1", STRATEGY: "none", MIG_STATE: "success", MPS: "false"}
    return Shape({GPU: str(gpus)}, labels)


def share_shape(product: str, gpus: int, config: Shares) -> Shape:
    """Time slices or MPS shares: renamed, the plain name stays with zero; else the product label says SHARED."""
    count = str(gpus * config.replicas)
    resources = {GPU: "0", SHARED: count} if config.rename else {GPU: count}
    label = product if config.rename else f"{product}-SHARED"
    mps = "true" if config.strategy == "mps" else "false"
    return Shape(resources, {PRODUCT: label, REPLICAS: str(config.replicas), STRATEGY: config.strategy, MPS: mps})


def mig_shape(product: str, gpus: int, config: str, strategy: str) -> Shape:
    """MIG instances; a profile that the product does not have fails (its generated configuration lacks it)."""
    profile = config.removeprefix("all-")
    table = next((known.mig for known in PRODUCTS.values() if known.label == product), {})
    if profile not in table:
        return Shape({GPU: str(gpus)}, {MIG_STATE: "failed"})
    count = str(gpus * table[profile])
    if strategy == "single":
        labels = {PRODUCT: f"{product}-MIG-{profile}", MIG_STATE: "success", "nvidia.com/mig.strategy": "single"}
        return Shape({GPU: count}, labels)
    labels = {PRODUCT: product, MIG_STATE: "success", "nvidia.com/mig.strategy": "mixed", f"nvidia.com/mig-{profile}.count": count}
    return Shape({GPU: "0", f"nvidia.com/mig-{profile}": count}, labels)
