"""The example platform with one server and three GPU nodes: enough for every stage, and quick."""

from typing import Any

import yaml

from workflows import examples

_PARTS: dict[str, Any] = {
    "approvals": [],
    "quorum": {"default": "all"},
    "hosts": {
        "servers": {"role": "server", "ranges": "sv1", "addresses": {"start": "10.10.0.11"}},
        "gpu": {"role": "agent", "ranges": "gpu[1-3]", "gpu": True, "addresses": {"start": "10.10.1.1"}},
    },
    "validation": {"nccl": {"inter_node_floor_gb_s": 350}, "dcgm_level": 1},
}
SMALL: dict[str, Any] = yaml.safe_load(examples.path("h200-16").read_text()) | _PARTS
"""The spec as it is written; what a test changes goes over it by `|`."""
