"""Writes the leaf switch of each host into an annotation of its node, for operators that read it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from steps.clients.kube.api import ApiError
from steps.contract.plain_text import count
from steps.errors import Refused
from steps.runtime.running_task import RunningTask


class LeafAnnotation(Struct, frozen=True, kw_only=True):
    """An annotation of nodes: its key, and the text before the leaf switch in its value (`tree:` gives `tree:leaf01`)."""

    key: str
    prefix: str = ""


class _LeafNodeMeta(Struct, frozen=True):
    name: str = ""
    annotations: dict[str, str] = {}


class _LeafNode(Struct, frozen=True):
    metadata: _LeafNodeMeta = _LeafNodeMeta()


def write(task: RunningTask, wanted: LeafAnnotation, leaves: Mapping[str, str]) -> tuple[dict[str, Any], ApiError | Refused] | None:
    """Annotate the nodes that exist and have another value. Return the change that was refused with the error, else None.

    The annotations are merged: an apply would take back the labels that an earlier stage applied to these nodes.
    """
    nodes = [node.metadata for node in task.kube.list("/api/v1/nodes", _LeafNode) or () if node.metadata.name in leaves]
    done = 0
    try:
        for node in nodes:
            value = f"{wanted.prefix}{leaves[node.name]}"
            if node.annotations.get(wanted.key) != value:
                patch = {"metadata": {"annotations": {wanted.key: value}}}
                task.kube.merge(f"/api/v1/nodes/{node.name}", patch)
                done += 1
    except (ApiError, Refused) as error:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name, **patch["metadata"]}}, error
    finally:
        task.did(f"{'changed' if done else 'unchanged'} annotation {wanted.key} ({done} of {count(len(nodes), 'node')})")
    return None
