"""The use case of `bringup exec`: run any Workflow manifest on the embedded engine."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from steps.contract.plain_text import count
from workflows.engines.local.manifest_execution import execute_manifest

_BAD = ("Failed", "Error")
_OF_OTHERS = ("DAG", "Steps", "StepGroup", "TaskGroup", "Retry")
"""Types of nodes that fail only because a node below them failed."""


def execute(manifest: Path, record: Path | None, actions: Path | None) -> tuple[int, str, list[str]]:
    """Run a manifest (see `execute_manifest`); return the exit code, the engine's error, and without one the result in lines."""
    messages: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bringup-record-") as scratch:
        # the summary is read from the record, so there is one even without a file for it
        record_file = record or Path(scratch) / "record.json"
        code = execute_manifest(manifest, record_file, actions, say=messages.append)
        return code, "".join(messages).strip(), [] if messages else list(_summary(record_file))


def _summary(record: Path) -> Iterator[str]:
    run_record = json.loads(record.read_text())
    nodes = run_record["nodes"]
    yield f"{run_record['phase']}: {count(len(nodes), 'node')} {run_record.get('message') or ''}".rstrip()
    bad = [node for node in nodes if node["phase"] in _BAD and run_record["phase"] in _BAD]
    for node in [node for node in bad if node["type"] not in _OF_OTHERS] or bad:
        yield f"  {node['name']}: {node['phase']}: {node.get('message') or 'it left no message'}"
