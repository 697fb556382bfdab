"""Execute any manifest that both engines support and write a record of its result, for `exec` and the conformance corpus."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workflows.engines.local import documents, inbox
from workflows.engines.local.errors import EngineError, ManifestRefusedError
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.result import News, NodeNews, RunNews, record
from workflows.engines.local.run_settings import RunPaths
from workflows.render.grammar.findings import LintFinding

GRACE = 3.0
_ANSWER_WITHIN = 10.0


@dataclass(frozen=True, slots=True)
class ScriptedAction:
    """An entry of a file `actions.yaml`: an operator's action and when it happens.

    It happens `wait` seconds after the node `when_node` is in `when_phase`, or after the workflow is suspended (`when_suspended`).
    With neither, only `wait` counts.
    """

    verb: str
    node: str
    wait: float
    when_node: str
    when_phase: str
    when_suspended: bool
    parameters: Mapping[str, str]
    message: str


def read_actions(path: Path) -> tuple[ScriptedAction, ...]:
    """Return the entries of a file `actions.yaml`, in order. Raises ManifestRefusedError if the file is malformed."""
    try:
        return _actions(documents.read(path)[0])
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as err:
        raise ManifestRefusedError([LintFinding(str(path), f"is not a list of operator actions: {err!r}")]) from err


def _actions(raw: Any) -> tuple[ScriptedAction, ...]:
    pairs = ((entry, entry.get("when") or {}) for entry in raw)
    return tuple(
        ScriptedAction(
            entry["do"],
            str(entry.get("node") or ""),
            float(entry.get("wait") or 0),
            str(when.get("node") or ""),
            str(when.get("phase") or ""),
            bool(when.get("suspended")),
            {key: str(value) for key, value in (entry.get("parameters") or {}).items()},
            str(entry.get("message") or ""),
        )
        for entry, when in pairs
    )


@dataclass
class _Script:
    """A simulated operator that plays scripted actions: it follows the engine's news, writes to its inbox, records the replies."""

    run_dir: Path
    actions: Sequence[ScriptedAction]
    phases: dict[str, str] = field(default_factory=dict)
    suspended: bool = False
    over: bool = False
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def observe(self, news: News) -> None:
        with self.changed:
            if isinstance(news, NodeNews):
                self.phases[news.node.name] = news.node.phase
            elif isinstance(news, RunNews):
                self.suspended = news.suspended
            self.changed.notify_all()

    def finish(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def play(self) -> None:
        for action in self.actions:
            with self.changed:
                self.changed.wait_for(lambda: self.over or self._is_time(action))  # noqa: B023  # waited for within the same turn
            if self.over:
                return
            time.sleep(action.wait)
            ticket = inbox.send(self.run_dir, action.verb, action.node, action.parameters, action.message)
            reply = inbox.wait(self.run_dir, ticket, _ANSWER_WITHIN)
            error = "no engine answered" if reply is None else reply.error
            self.outcomes.append({"do": action.verb, "accepted": not error, "error": error})

    def _is_time(self, action: ScriptedAction) -> bool:
        if action.when_node:
            return self.phases.get(action.when_node) == action.when_phase
        return self.suspended or not action.when_suspended


def read_manifests(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the Workflow of a YAML file, and its WorkflowTemplates by name.

    Templates may also be in a `workflowtemplate.yaml` beside the file. Raises ManifestRefusedError unless there is exactly one
    Workflow.
    """
    beside = path.with_name("workflowtemplate.yaml")
    documents_read = [document for file in (path, beside) if file == path or file.is_file() for document in documents.read(file)]
    objects = [document for document in documents_read if isinstance(document, dict)]
    runs = [document for document in objects if document.get("kind") == "Workflow"]
    if len(runs) != 1:
        raise ManifestRefusedError([LintFinding(str(path), f"holds {len(runs)} objects of kind Workflow; exactly one is executed")])
    templates = [document for document in objects if document.get("kind") == "WorkflowTemplate"]
    return runs[0], {str((document.get("metadata") or {}).get("name")): document for document in templates}


def execute_manifest(
    path: Path,
    record_file: Path | None = None,
    actions: Path | None = None,
    *,
    run_dir: Path | None = None,
    parallelism: int = 8,
    say: Callable[[str], object] | None = None,
) -> int:
    """Run a manifest to its end, write a record of its result to `record_file`, and return an exit code.

    `/tmp/` in commands becomes the attempt's own folder. `actions` is a file of operator actions in the form of the corpus. Without
    `run_dir` the run uses a temporary directory. The exit code is 0 (Succeeded), 65 (Failed), 1 (Error), or that of an engine
    error, whose sentence goes to `say` (by default standard error).
    """
    say = say or sys.stderr.write
    try:
        manifest, templates = read_manifests(path)
        script = read_actions(actions) if actions is not None else ()
        with tempfile.TemporaryDirectory(prefix="bringup-exec-", ignore_cleanup_errors=True) as scratch:
            directory = (run_dir or Path(scratch) / "run").absolute()
            return _execute(manifest, templates, directory, record_file, script, parallelism)
    except EngineError as err:
        say(f"{err}\n")
        return err.exit_code


def _execute(
    manifest: Mapping[str, Any],
    templates: Mapping[str, Mapping[str, Any]],
    run_dir: Path,
    record_file: Path | None,
    actions: Sequence[ScriptedAction],
    parallelism: int,
) -> int:
    script = _Script(run_dir, actions)
    paths = RunPaths.below(run_dir, private_tmp=True)
    engine = LocalEngine(run_dir, manifest, templates, None, paths, parallelism, script.observe, GRACE)
    operator = threading.Thread(target=script.play, name="operator", daemon=True)
    operator.start()
    try:
        result = engine.run()
    finally:
        script.finish()
        operator.join(_ANSWER_WITHIN)
    if record_file is not None:
        result_record = record(result)
        if actions:
            result_record["actions"] = script.outcomes
        record_file.write_text(json.dumps(result_record, indent=1, ensure_ascii=False) + "\n")
    return result.exit_code
