"""Public interface of the local engine: run a manifest in a run directory, or resume it."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from workflows.engines.local.errors import ManifestRefusedError
from workflows.engines.local.executor import StartProcess, start_process
from workflows.engines.local.journal import Journal
from workflows.engines.local.manifest_parser import parse_plan as make_plan
from workflows.engines.local.result import Observer, RunResult
from workflows.engines.local.run_driver import Driver, TimePassing
from workflows.engines.local.run_settings import RunPaths, RunSettings
from workflows.engines.local.run_state import RunBegan
from workflows.render.grammar.findings import LintFinding, refused
from workflows.render.grammar.lint import lint

GRACE = 10.0  # seconds between SIGTERM and SIGKILL


class LocalEngine:
    """A run of one manifest in one directory.

    `environment` is the base environment of every step (None: `default_environment`). `paths` are the run's folders (None: below
    the run directory). `parallelism` is how many steps run at one time. `observer` gets the news of the run. `passing` lets
    simulated time pass. Raises ManifestRefusedError if Argo and the local engine do not both support the manifest.
    """

    def __init__(
        self,
        run_dir: Path,
        manifest: Mapping[str, Any],
        templates: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        paths: RunPaths | None = None,
        parallelism: int = 8,
        observer: Observer | None = None,
        grace: float = GRACE,
        passing: TimePassing | None = None,
        start: StartProcess = start_process,
    ) -> None:
        findings = lint(manifest, templates)
        if refused(findings):
            raise ManifestRefusedError(refused(findings))
        if manifest.get("kind") != "Workflow":
            sentence = "only a Workflow can be run; put its WorkflowTemplate into the same file, or beside it"
            raise ManifestRefusedError([LintFinding("kind", sentence)])
        if parallelism < 1:
            raise ValueError("parallelism must be at least 1")
        self.run_dir = run_dir.absolute()
        named = _named(manifest)
        run_paths = paths or RunPaths.below(self.run_dir)
        folders = (str(run_paths.tasks), str(run_paths.fleet), str(run_paths.secrets), str(run_paths.store))
        documents = {name: dict(document) for name, document in (templates or {}).items()}
        self._settings = RunSettings(named, documents, folders, run_paths.private_tmp, parallelism, grace, secrets.token_hex(16))
        self._notes = [str(finding) for finding in findings]
        self._environment = environment
        self._observer = observer
        self._passing = passing
        self._start = start

    def run(self) -> RunResult:
        """Start the run and drive it to its end. Raises RunDirectoryError, RunBusyError, StorageError."""
        plan = make_plan(self._settings.manifest, self._settings.templates, self._settings.parallelism)
        meta = {
            "settings": msgspec.json.encode(self._settings).decode(),
            "name": plan.name,
            "began": str(time.time()),
            "notes": msgspec.json.encode(self._notes).decode(),
        }
        with Journal.create(self.run_dir, meta) as journal:
            driver = Driver(self.run_dir, journal, self._settings, self._environment, self._observer, self._passing, self._start)
            return driver.drive([RunBegan(at=0.0)])

    @classmethod
    def resume(cls, run_dir: Path, environment: Mapping[str, str] | None = None, observer: Observer | None = None) -> RunResult:
        """Continue a run whose engine has died: its processes are killed, and tasks that had started start again.

        A finished run is returned unchanged. Raises RunDirectoryError, RunBusyError, JournalForeignError, StorageError.
        """
        run_dir = run_dir.absolute()
        with Journal.open(run_dir) as journal:
            settings = msgspec.json.decode(journal.meta["settings"], type=RunSettings)
            return Driver(run_dir, journal, settings, environment, observer).take_over()


def _named(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest with a name: a `generateName` gets five random characters, as the API server would add."""
    meta = dict(manifest.get("metadata") or {})
    if not meta.get("name"):
        letters = string.ascii_lowercase + string.digits
        meta["name"] = str(meta.pop("generateName")) + "".join(secrets.choice(letters) for _ in range(5))
    return {**manifest, "metadata": meta}
