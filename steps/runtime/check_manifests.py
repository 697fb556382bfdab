"""Manifests of checks: their markers replaced, and the nodes on which their pods run listed in as few words as possible."""

from collections.abc import Mapping
from typing import Any

from steps.clients.kube.client import Kube
from steps.runtime import target

LISTED = 500
"""Largest number of nodes whose names a pod carries (about 5 kB). For more nodes, pods list the nodes to avoid instead."""
NODES = "@nodes"
"""Marker of the list of the nodes under test."""


def fill(value: Any, markers: Mapping[str, Any], others: tuple[str, ...] | None = None) -> Any:
    """Return a manifest with every text that is a marker replaced by its value.

    If `others`, all other nodes of the cluster, are fewer than those of marker `@nodes`, a node selection lists the nodes to avoid
    instead: every pod carries the list, and 10,000 names in 10,000 pods are a gigabyte.
    """
    if isinstance(value, dict):
        if (
            value.get("values") == NODES
            and value.get("operator") == "In"
            and others is not None
            and len(others) < len(markers[NODES])
        ):
            return {**value, "operator": "NotIn" if others else "Exists", "values": list(others)}
        return {key: fill(item, markers, others) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [fill(item, markers, others) for item in value]
    return markers.get(value, value) if isinstance(value, str) else value


def on_nodes(manifest: Any, nodes: tuple[str, ...], others: tuple[str, ...] | None = None) -> Any:
    """Return a manifest for the nodes under test, with the markers of `node_markers` replaced."""
    return fill(manifest, node_markers(nodes), others)


def node_markers(nodes: tuple[str, ...]) -> dict[str, Any]:
    """Return the values of the markers that nodes under test replace.

    `@count` becomes their number, `@count_text` the number as text (for environment variables), `@nodes` the list of their names.
    """
    return {"@count": len(nodes), "@count_text": str(len(nodes)), NODES: list(nodes)}


def other_nodes(kube: Kube, nodes: tuple[str, ...]) -> tuple[str, ...] | None:
    """Return the nodes of the cluster that are not under test; None if the tested nodes are few enough to be listed by name."""
    if len(nodes) <= LISTED:
        return None
    there = kube.list("/api/v1/nodes", target.IdentifiedObject) or ()
    return tuple(sorted({node.metadata.name for node in there} - set(nodes)))
