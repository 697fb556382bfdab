"""Keeps rehearsals off clusters in use: the simulator makes nodes and plays controllers in whatever it is pointed at."""

from collections.abc import Collection
from pathlib import Path

import msgspec
from msgspec import Struct

from workflows.rehearsal.simulator.api import Api
from workflows.rehearsal.simulator.kinds import NODES

ALLOWED = "bringup/rehearsal"
"""Label by which the owner of a real node says that its cluster is for rehearsals."""


class ForeignCluster(ValueError):
    """The API server has nodes that are not this rehearsal's."""

    hint = f"rehearse against an API server of its own; label a test cluster's own nodes {ALLOWED}=allowed"


class _Meta(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}


class _Node(Struct, frozen=True):
    metadata: _Meta


def check(kubeconfig: Path, ours: Collection[str]) -> None:
    """Raise ForeignCluster when the cluster has nodes other than ours and those that are labelled for it."""
    api = Api.from_kubeconfig(kubeconfig)
    try:
        found = [msgspec.json.decode(raw, type=_Node).metadata for raw in api.list(NODES) or ()]
    finally:
        api.close()
    strangers = sorted(node.name for node in found if node.name not in ours and node.labels.get(ALLOWED) != "allowed")
    if strangers:
        raise ForeignCluster(f"{kubeconfig} leads to a cluster with nodes of its own: {', '.join(strangers[:5])}")
