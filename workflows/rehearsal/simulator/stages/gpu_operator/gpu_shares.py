"""GPU sharing as pure functions: what a node advertises for shares or MIG instances (`steps/docs/facts/gpu.md`, Sharing)."""

from __future__ import annotations

import hashlib
from typing import Any

import yaml
from msgspec import Struct

from workflows.rehearsal.simulator.api.api_kinds import Obj, labels_of
from workflows.spec.accelerators import PRODUCTS

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
PRODUCT, REPLICAS, STRATEGY = "nvidia.com/gpu.product", "nvidia.com/gpu.replicas", "nvidia.com/gpu.sharing-strategy"
MIG_STATE, MPS = "nvidia.com/mig.config.state", "nvidia.com/mps.capable"


class SharesConfig(Struct, frozen=True):
    """A device-plugin configuration that divides each GPU into `replicas` shares.

    `strategy` is the value of the label `gpu.sharing-strategy`. With `rename` the shares are advertised as nvidia.com/gpu.shared;
    with `refuse_two` a pod may not have more than one.
    """

    strategy: str
    replicas: int
    rename: bool
    refuse_two: bool


class AdvertisedResources(Struct, frozen=True):
    """GPU resources (name to quantity) and labels that a node advertises under one sharing configuration."""

    resources: dict[str, str]
    labels: dict[str, str]


def parse_shares(text: str) -> SharesConfig | None:
    """Return the sharing in a device-plugin configuration (YAML), or None if it leaves GPUs whole."""
    data: Any = yaml.safe_load(text) if text else None
    sharing = data.get("sharing") if isinstance(data, dict) else None
    for key, word in (("timeSlicing", "time-slicing"), ("mps", "mps")):
        if sharing and key in sharing:
            part = sharing[key]
            refuse = part.get("failRequestsGreaterThanOne", False) or key == "mps"
            return SharesConfig(word, part["resources"][0]["replicas"], part.get("renameByDefault", False), refuse)
    return None


def whole_shape(product: str, gpus: int) -> AdvertisedResources:
    """Return what a node with `gpus` undivided GPUs advertises."""
    labels = {PRODUCT: product, REPLICAS: "1", STRATEGY: "none", MIG_STATE: "success", MPS: "false"}
    return AdvertisedResources({GPU: str(gpus)}, labels)


def share_shape(product: str, gpus: int, config: SharesConfig) -> AdvertisedResources:
    """Return what a node with `gpus` GPUs advertises if they are divided into time slices or MPS shares.

    Renamed shares leave the plain resource at zero; otherwise the product label ends in SHARED.
    """
    count = str(gpus * config.replicas)
    resources = {GPU: "0", SHARED: count} if config.rename else {GPU: count}
    label = product if config.rename else f"{product}-SHARED"
    mps = "true" if config.strategy == "mps" else "false"
    return AdvertisedResources(resources, {PRODUCT: label, REPLICAS: str(config.replicas), STRATEGY: config.strategy, MPS: mps})


def mig_shape(product: str, gpus: int, config: str, strategy: str) -> AdvertisedResources:
    """Return what a node with `gpus` GPUs advertises after the MIG manager applied `config` (`all-1g.10gb`).

    `strategy` is `single` or `mixed`. A profile that the product does not have leaves whole GPUs and the state `failed`.
    """
    profile = config.removeprefix("all-")
    table = next((candidate.mig for candidate in PRODUCTS.values() if candidate.label == product), {})
    if profile not in table:
        return AdvertisedResources({GPU: str(gpus)}, {MIG_STATE: "failed"})
    count = str(gpus * table[profile])
    if strategy == "single":
        labels = {PRODUCT: f"{product}-MIG-{profile}", MIG_STATE: "success", "nvidia.com/mig.strategy": "single"}
        return AdvertisedResources({GPU: count}, labels)
    labels = {PRODUCT: product, MIG_STATE: "success", "nvidia.com/mig.strategy": "mixed", f"nvidia.com/mig-{profile}.count": count}
    return AdvertisedResources({GPU: "0", f"nvidia.com/mig-{profile}": count}, labels)


PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
MIG_CONFIG = "nvidia.com/mig.config"
DRA = "nvidia.com/dra-kubelet-plugin"


def has_sharing_label(node: Obj) -> bool:
    """Return True if a label on the node asks for shares, MIG instances or DRA, and not for whole GPUs by the device plugin."""
    labels = labels_of(node)
    shares = labels.get(PLUGIN_CONFIG, "whole") != "whole"
    return shares or labels.get(MIG_CONFIG, "all-disabled") != "all-disabled" or labels.get(DRA) == "true"


def device_uuid(node: str, gpu: int, instance: int = -1) -> str:
    """Return the UUID of a GPU or, if `instance` is not negative, of a MIG instance on it. It is the same in every run."""
    text = hashlib.sha256(f"{node}/{gpu}/{instance}".encode()).hexdigest()
    kind = "GPU" if instance < 0 else "MIG"
    return f"{kind}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
