"""Folders of acceptances on the shared file system: those of killed runs are removed, and nobody else's."""

import os
import socket
from pathlib import Path

from steps.clients.environment import Environment
from steps.contract.task import Task, Verb
from steps.runtime.context import Context
from steps.slurmacceptance import task_scope
from steps.slurmacceptance.task_scope import OWNER, ScopeArguments


def context(tmp_path: Path) -> Context:
    here = Environment(
        tasks=tmp_path, fleet=tmp_path, secrets=tmp_path, store=tmp_path, out=tmp_path / "out", run="r1", engine="local"
    )
    return Context(Task(stage="slurm_acceptance", name="jobs", verb=Verb.BUILD), here)


def test_only_the_folder_of_a_run_that_is_gone_is_removed(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    scope = ScopeArguments(gate="slurm_acceptance/jobs", shared=str(shared))
    own = task_scope.folder(context(tmp_path), scope)
    host, gone = socket.gethostname(), f"by {os.getpid()}/1"
    owners = {
        "killed": f"bringup killed on {host} {gone}",
        "elsewhere": f"bringup elsewhere on another-login-node {gone}",
        "renamed": f"bringup other on {host} {gone}",
        "strange": "not a comment",
    }
    for name, text in owners.items():
        (shared / name).mkdir()
        (shared / name / OWNER).write_text(text)
    (shared / "results").mkdir()
    (shared / "link").symlink_to(shared / "killed")
    task_scope.remove_abandoned(context(tmp_path), scope)
    assert sorted(path.name for path in shared.iterdir()) == ["elsewhere", "link", own.name, "renamed", "results", "strange"]
