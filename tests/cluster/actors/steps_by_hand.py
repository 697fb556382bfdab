"""Single tasks of a plan run as an engine runs them: `python -m steps` in a process of its own, with its five folders."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kubelab import product

from steps.contract import paths
from workflows.plan import run_folders
from workflows.plan.model import Plan
from workflows.plan.run_folders import tasks_folder

RUN = "by-hand"


@dataclass(frozen=True)
class Steps:
    """One run of a plan, in a folder. Verbs run in an order that the caller chooses."""

    folder: Path
    plan: Plan
    certificate: Path
    """Of the servers that a client of the site's people reaches; steps know nothing of it."""

    def lay(self, secrets: Mapping[str, str]) -> None:
        """Make the five folders."""
        files: dict[str, Mapping[str, bytes]] = {name: {} for name in paths.FOLDERS}
        files["tasks"], files["fleet"] = tasks_folder(self.plan), run_folders.fleet_folder(self.plan.digest, self.plan.hosts)
        files["secrets"] = {name: text.encode() for name, text in secrets.items()}
        for place, contents in files.items():
            (self.folder / place).mkdir(parents=True)
            for name, data in contents.items():
                (self.folder / place / name).touch(0o600)
                (self.folder / place / name).write_bytes(data)

    def secret(self, name: str, text: str) -> None:
        """Change a secret file."""
        (self.folder / "secrets" / name).write_text(text)

    def run(self, task: str) -> subprocess.CompletedProcess[str]:
        """Run one task, `STAGE.TASK`, to its end."""
        verb = next(step.verb.value for step in self.plan.tasks if f"{step.stage}.{step.name}" == task)
        given = {paths.variable(name): str(self.folder / name) for name in paths.FOLDERS}
        environment = os.environ | given | {paths.RUN: RUN, paths.ENGINE: "local"}
        command = [sys.executable, "-m", "steps", verb, "--task", f"{task}.json"]
        return subprocess.run(command, cwd=product.ROOT, env=environment, capture_output=True, text=True, check=False)
