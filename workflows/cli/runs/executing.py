"""What `exec` prints of a run: its phase, and each node that failed with its message."""

import json
from collections.abc import Iterator
from pathlib import Path

from workflows.cli import output

_BAD = ("Failed", "Error")
_OF_OTHERS = ("DAG", "Steps", "StepGroup", "TaskGroup", "Retry")
"""Nodes that fail because a node below them did."""


def summary(record: Path) -> Iterator[str]:
    """The lines of a node record in the conformance format."""
    made = json.loads(record.read_text())
    nodes = made["nodes"]
    yield f"{made['phase']}: {output.count(len(nodes), 'node')} {made.get('message') or ''}".rstrip()
    bad = [node for node in nodes if node["phase"] in _BAD and made["phase"] in _BAD]
    for node in [node for node in bad if node["type"] not in _OF_OTHERS] or bad:
        yield f"  {node['name']}: {node['phase']}: {node.get('message') or 'it left no message'}"
