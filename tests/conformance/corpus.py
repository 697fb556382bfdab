"""The cases of the conformance corpus, what the real controller did with them, and what the embedded engine does."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workflows.engines.local.manifest_execution import execute_manifest

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[3] / "shared") / "argo_conformance"


def cases() -> list[Path]:
    """The folder of each case."""
    return sorted(path.parent for path in (DATA / "cases").glob("*/recorded.json"))


def execute(case: Path, results: Path) -> str:
    """The outcome of one case: executed, refused, or what else happened."""
    actions = case / "actions.yaml"
    said: list[str] = []
    code = execute_manifest(
        case / "workflow.yaml", results / f"{case.name}.json", actions if actions.exists() else None, say=said.append
    )
    if code == 64 and said:
        (results / f"{case.name}.refused").write_text("".join(said))
        return "refused"
    return "executed" if code in (0, 1, 65) and (results / f"{case.name}.json").exists() else f"exit code {code}: {''.join(said)}"


@dataclass(frozen=True)
class Results:
    """Results of the embedded engine: a folder with a file for each case, and the outcome of each."""

    folder: Path
    outcomes: dict[str, str]

    @property
    def executed(self) -> list[str]:
        """Cases that ran, by name."""
        return [name for name, outcome in self.outcomes.items() if outcome == "executed"]

    def recorded(self, case: str) -> dict[str, Any]:
        """Return the recording of a case by the real controller."""
        found: dict[str, Any] = json.loads((DATA / "cases" / case / "recorded.json").read_text())
        return found

    def nodes(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each recorded node of each executed case, with the case's name."""
        for case in self.executed:
            yield from ((case, node) for node in self.recorded(case)["nodes"])

    def messages(self) -> Iterator[str]:
        """Each message that the real controller gave in an executed case: of workflows, then of nodes."""
        found = [self.recorded(case).get("message") for case in self.executed] + [node.get("message") for _, node in self.nodes()]
        yield from (str(message) for message in found if message)

    def compare(self, *options: str) -> subprocess.CompletedProcess[str]:
        """The corpus's own comparison, all fields where no option says otherwise."""
        command = [sys.executable, str(DATA / "compare.py"), str(DATA / "cases"), str(self.folder), *options]
        return subprocess.run(command, capture_output=True, text=True, check=False)
