"""The embedded engine's public edge: one manifest, one run directory, one result."""

from __future__ import annotations

import secrets
import string
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from workflows.engines.local.driver import Driver, Passing
from workflows.engines.local.errors import ManifestRefusedError
from workflows.engines.local.journal import Journal
from workflows.engines.local.parse import plan as make_plan
from workflows.engines.local.paths import RunPaths
from workflows.engines.local.result import Observer, RunResult
from workflows.engines.local.settings import Settings
from workflows.engines.local.state import RunBegan
from workflows.render.grammar.findings import Finding, refused
from workflows.render.grammar.lint import lint

GRACE = 10.0  # seconds between SIGTERM and SIGKILL


class LocalEngine:
    """One run of one manifest in one directory.

    `environment` is the base environment of every child (None: `default_environment`), `paths` the run-level folders (None:
    below the run directory), `parallelism` how many children run at one time, `observer` is told what happens as it happens.
    `passing` lets time pass in a rehearsed world, which has its own.
    ManifestRefusedError when the manifest is outside of the grammar.
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
        passing: Passing | None = None,
    ) -> None:
        findings = lint(manifest, templates)
        if refused(findings):
            raise ManifestRefusedError(refused(findings))
        if manifest.get("kind") != "Workflow":
            raise ManifestRefusedError([Finding("kind", "only a Workflow is executed; give its WorkflowTemplate beside it")])
        if parallelism < 1:
            raise ValueError("parallelism must be at least 1")
        self.run_dir = run_dir.absolute()
        named = _named(manifest)
        where = paths or RunPaths.below(self.run_dir)
        folders = (str(where.tasks), str(where.fleet), str(where.secrets), str(where.store))
        known = {name: dict(document) for name, document in (templates or {}).items()}
        self._settings = Settings(named, known, folders, where.private_tmp, parallelism, grace, secrets.token_hex(16))
        self._notes = [str(finding) for finding in findings]
        self._environment = environment
        self._observer = observer
        self._passing = passing

    def run(self) -> RunResult:
        """Begin the run and drive it to its end.  RunDirectoryError, RunBusyError, StorageError."""
        plan = make_plan(self._settings.manifest, self._settings.templates, self._settings.parallelism)
        meta = {
            "settings": msgspec.json.encode(self._settings).decode(),
            "name": plan.name,
            "began": str(time.time()),
            "notes": msgspec.json.encode(self._notes).decode(),
        }
        with Journal.create(self.run_dir, meta) as journal:
            driver = Driver(self.run_dir, journal, self._settings, self._environment, self._observer, self._passing)
            return driver.drive([RunBegan(at=0.0)])

    @classmethod
    def resume(cls, run_dir: Path, environment: Mapping[str, str] | None = None, observer: Observer | None = None) -> RunResult:
        """Go on with a run whose engine is gone: its processes are ended first, started tasks start again.

        A finished run is returned as it is.  RunDirectoryError, RunBusyError, JournalForeignError, StorageError.
        """
        run_dir = run_dir.absolute()
        with Journal.open(run_dir) as journal:
            settings = msgspec.json.decode(journal.meta["settings"], type=Settings)
            return Driver(run_dir, journal, settings, environment, observer).take_over()


def _named(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with a name: a `generateName` gets five random characters, as the API server would give it."""
    meta = dict(manifest.get("metadata") or {})
    if not meta.get("name"):
        letters = string.ascii_lowercase + string.digits
        meta["name"] = str(meta.pop("generateName")) + "".join(secrets.choice(letters) for _ in range(5))
    return {**manifest, "metadata": meta}
