"""The output of `exec`: the run's phase, and each node that failed with its message."""

import json
from collections.abc import Iterator
from pathlib import Path

from workflows.cli import output

_BAD = ("Failed", "Error")
_OF_OTHERS = ("DAG", "Steps", "StepGroup", "TaskGroup", "Retry")
"""Types of nodes that fail because a node below them failed."""


def summary(record: Path) -> Iterator[str]:
    """Yield the lines for a node record in the conformance format."""
    run_record = json.loads(record.read_text())
    nodes = run_record["nodes"]
    yield f"{run_record['phase']}: {output.count(len(nodes), 'node')} {run_record.get('message') or ''}".rstrip()
    bad = [node for node in nodes if node["phase"] in _BAD and run_record["phase"] in _BAD]
    for node in [node for node in bad if node["type"] not in _OF_OTHERS] or bad:
        yield f"  {node['name']}: {node['phase']}: {node.get('message') or 'it left no message'}"
