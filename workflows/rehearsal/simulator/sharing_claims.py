"""Which nodes the sharing role decides about, and the names of their devices: shared by the roles that write GPU nodes."""

from __future__ import annotations

import hashlib

from workflows.rehearsal.simulator.kinds import Obj

PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
MIG_CONFIG = "nvidia.com/mig.config"
DRA = "nvidia.com/dra-kubelet-plugin"


def claimed(node: Obj) -> bool:
    """Whether a label on the node asks for another advertisement than whole GPUs by the device plugin."""
    labels = node["metadata"].get("labels") or {}
    shares = labels.get(PLUGIN_CONFIG, "whole") != "whole"
    return shares or labels.get(MIG_CONFIG, "all-disabled") != "all-disabled" or labels.get(DRA) == "true"


def uuid(node: str, gpu: int, instance: int = -1) -> str:
    """UUID of a GPU, or of a MIG instance on it; the same on every run."""
    text = hashlib.sha256(f"{node}/{gpu}/{instance}".encode()).hexdigest()
    kind = "GPU" if instance < 0 else "MIG"
    return f"{kind}-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
