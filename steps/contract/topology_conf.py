"""Slurm's topology.conf: leaf switches with their nodes, below one switch that joins them.

Format: https://slurm.schedmd.com/topology.conf.html. SUNK leaves the file to the site, since its nodes have the names of pods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from steps.contract.host_ranges import expand, fold

KEY = "topology.conf"
ROOT = "root"
"""Name of the switch above all leaf switches."""
_LEAF = re.compile(r"SwitchName=(\S+) Nodes=(\S+)")


def text_of(leaves: Mapping[str, Sequence[str]]) -> str:
    """Return topology.conf for leaf switch → Slurm nodes; equal leaves give equal text, whatever their order. Empty without any."""
    named = {leaf: names for leaf, names in sorted(leaves.items()) if names}
    lines = [f"SwitchName={leaf} Nodes={fold(sorted(names))}" for leaf, names in named.items()]
    lines += [f"SwitchName={ROOT} Switches={','.join(named)}"] if named else []
    return "".join(f"{line}\n" for line in lines)


def leaves_of(text: str) -> dict[str, tuple[str, ...]]:
    """Return leaf switch → nodes of a topology.conf; switches above switches are left out."""
    matches = (match for match in map(_LEAF.fullmatch, text.splitlines()) if match)
    return {match[1]: tuple(expand(match[2])) for match in matches}
