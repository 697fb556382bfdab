"""The use cases of `bringup exec` and `bringup lint`: run any Workflow manifest on the embedded engine, or only check it."""

import getpass
import json
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from steps.contract import plain_text
from steps.contract.plain_text import count
from workflows.engines.local.errors import ManifestRefusedError
from workflows.engines.local.manifest_execution import execute_manifest, read_manifests
from workflows.render.grammar.findings import LintFinding
from workflows.render.grammar.lint import lint

_BAD = ("Failed", "Error")
_OF_OTHERS = ("DAG", "Steps", "StepGroup", "TaskGroup", "Retry")
"""Types of nodes that fail only because a node below them failed."""


MOST_COMMANDS = 20
"""Largest number of commands that a warning lists."""


def findings(manifest: Path) -> tuple[LintFinding, ...]:
    """Return everything that the linter finds in a manifest file, which is not run."""
    try:
        workflow, templates = read_manifests(manifest, runs_only=False)
    except ManifestRefusedError as refusal:
        return refusal.findings
    return lint(workflow, templates)


def warning(manifest: Path) -> list[str]:
    """Return lines that say which commands a manifest would run on this machine, and as whom; empty if it would be refused."""
    try:
        workflow, templates = read_manifests(manifest)
    except ManifestRefusedError:
        return []
    documents = (workflow, *templates.values())
    entries = [entry for document in documents for entry in ((document.get("spec") or {}).get("templates") or ())]
    commands = [_command(entry) for entry in entries if isinstance(entry, dict) and isinstance(entry.get("container"), dict)]
    more = len(commands) - MOST_COMMANDS
    return [
        f"{manifest} runs {count(len(commands), 'command')} on this machine ({socket.gethostname()}) as user {_user()}, "
        "with this user's files and network; no container confines them:",
        *(f"  {command}" for command in commands[:MOST_COMMANDS]),
        *([f"  and {more} more"] if more > 0 else []),
    ]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an id without an entry in the user database
        return "of this process"


def _command(entry: dict[str, Any]) -> str:
    container = entry["container"]
    words = [str(word) for key in ("command", "args") for word in container.get(key) or ()]
    return plain_text.line(f"{entry.get('name')}: {' '.join(words)}")[:200]


def execute(
    manifest: Path, record: Path | None, actions: Path | None, show: Callable[[str, str], object] | None = None
) -> tuple[int, str, list[str]]:
    """Run a manifest (see `execute_manifest`); return the exit code, the engine's error, and without one the result in lines."""
    messages: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bringup-record-") as scratch:
        # the summary is read from the record, so there is one even without a file for it
        record_file = record or Path(scratch) / "record.json"
        code = execute_manifest(manifest, record_file, actions, say=messages.append, show=show)
        return code, "".join(messages).strip(), [] if messages else list(_summary(record_file))


def _summary(record: Path) -> Iterator[str]:
    run_record = json.loads(record.read_text())
    nodes = run_record["nodes"]
    why = f"; {run_record['message']}" if run_record.get("message") else ""
    yield f"{run_record['phase']}: {count(len(nodes), 'node')}{why}"
    bad = [node for node in nodes if node["phase"] in _BAD and run_record["phase"] in _BAD]
    for node in [node for node in bad if node["type"] not in _OF_OTHERS] or bad:
        yield f"  {node['name']}: {node['phase']}: {node.get('message') or 'it left no message'}"
