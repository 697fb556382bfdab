"""Slurm's gres.conf for pods of slurmd whose image cannot find GPUs by itself: one line for all nodes with equal GPUs.

SUNK's chart writes `AutoDetect=nvml`, its images lack NVML, and no value of the chart changes that. `AutoDetect=off` works with
the device files of each node (https://github.com/coreweave/sunk-anywhere, docs/troubleshooting.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from steps.contract.host_ranges import expand, fold

KEY = "gres.conf"
_LINE = re.compile(r"NodeName=(\S+) Name=gpu Type=(\S+) File=/dev/nvidia(?:\[0-([0-9]+)\]|0)")


class GresConf(Struct, frozen=True, kw_only=True):
    """Arguments of the task that corrects gres.conf, and writes topology.conf beside it.

    `name` is the ConfigMap in `namespace`. `types` maps a NodeSet to the GPU type in its GRES (`h200`). `pods` is the number of
    pods to wait for, of those with GPUs, or of all with `tree`: topology.conf then has them below the leaf switches of their hosts,
    which `select` takes from the fleet. `script` resumes nodes and has slurmctld read topology.conf; it runs in `container` of the
    pod `login`, if that is not empty.
    """

    namespace: str
    types: dict[str, str]
    pods: int
    name: str = "slurm-slurm-conf"
    login: str = "slurm-login-0"
    container: str = "sshd"
    script: str = ""
    tree: bool = False
    select: str = "all"


class NodeGpus(Struct, frozen=True, order=True):
    """The GPUs of a Slurm node: their type, and their number."""

    type: str
    count: int


def text_of(nodes: Mapping[str, NodeGpus]) -> str:
    """Return gres.conf for Slurm nodes with GPUs; equal nodes give equal text, whatever their order."""
    groups: dict[NodeGpus, list[str]] = {}
    for name, gpus in nodes.items():
        groups.setdefault(gpus, []).append(name)
    lines = ["AutoDetect=off"]
    for gpus, names in sorted(groups.items()):
        files = f"/dev/nvidia[0-{gpus.count - 1}]" if gpus.count > 1 else "/dev/nvidia0"
        lines.append(f"NodeName={fold(names)} Name=gpu Type={gpus.type} File={files}")
    return "".join(f"{line}\n" for line in lines)


def nodes_of(text: str) -> dict[str, NodeGpus]:
    """Return the nodes of a gres.conf that `text_of` wrote; lines of another form are left out."""
    lines = (match for match in map(_LINE.fullmatch, text.splitlines()) if match)
    return {name: NodeGpus(match[2], int(match[3] or 0) + 1) for match in lines for name in expand(match[1])}
