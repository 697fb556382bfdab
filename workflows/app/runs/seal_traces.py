"""Traces of a run's seal in the engine's files, which show that the seal or its signature was taken away from the store."""

from __future__ import annotations

import os

from steps.clients import regular_files
from steps.contract import run_records
from steps.contract.runs import run_seal
from workflows.engines import seal_keys
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import RunNodeStatus, RunStatus
from workflows.render import names

SEAL = names.template(run_records.STAGE, "seal")
"""Template of the task that seals a run."""
_MOST_BYTES = 1 << 20
"""Bytes of the seal task's log that are read: its last lines are what counts."""


def unsigned(folder: RunFolder) -> list[str]:
    """Return a line for a run of this machine whose seal could not be signed, as every seal should be; empty if it is signed."""
    if regular_files.kind_of(folder.stored / run_seal.FILE) is None:
        return []
    if regular_files.kind_of(folder.stored / run_seal.SIGNATURE) is not None:
        return []
    key = seal_keys.path(folder.home)
    why = f"{key} cannot sign (bringup logs run.seal says why): remove it, and the next run makes a new one"
    lacking = "this machine made no key: ssh-keygen is missing, or its folder cannot be written to"
    return [f"seal     not signed, so whoever can write these files can seal them anew; {why if os.path.lexists(key) else lacking}"]


def missing(folder: RunFolder, engine: RunStatus) -> tuple[str, ...]:
    """Return what the engine saw written and the run's folder no longer has: the seal, or its signature.

    Without this, whoever alters evidence would only have to remove the seal too: an unsealed run looks like one that was killed.
    """
    done = next((node for node in engine.nodes if node.template == SEAL and node.phase == "Succeeded"), None)
    if done is None:
        return ()
    if regular_files.kind_of(folder.stored / run_seal.FILE) is None:
        return (f"{run_seal.FILE}: missing, although the engine's journal says that the run was sealed",)
    if regular_files.kind_of(folder.stored / run_seal.SIGNATURE) is None and _signed(folder, done):
        return (f"{run_seal.SIGNATURE}: missing, although the engine's log says that the seal was signed",)
    return ()


def _signed(folder: RunFolder, node: RunNodeStatus) -> bool:
    """Return True if the log of the seal's task says that it signed the seal."""
    try:
        log = regular_files.read(folder.engine, node.log)
    except OSError:
        return False
    return run_seal.SIGNED_WITH in log[-_MOST_BYTES:].decode(errors="replace")
