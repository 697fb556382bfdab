"""Execute any manifest that both engines support and write a record of its result, for `exec` and the conformance corpus."""

from __future__ import annotations

import json
import sys
import tempfile
import threading
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
_MOST_OUTPUT = 64 << 10
"""Largest number of bytes of one pod's output that is shown."""


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
    show: Callable[[str, str], object] | None = None
    phases: dict[str, str] = field(default_factory=dict)
    suspended: bool = False
    over: bool = False
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def observe(self, news: News) -> None:
        with self.changed:
            if isinstance(news, NodeNews):
                self._show(news)
                self.phases[news.node.name] = news.node.phase
            elif isinstance(news, RunNews):
                self.suspended = news.suspended
            self.changed.notify_all()

    def _show(self, news: NodeNews) -> None:
        """Pass on the output of a pod that has just ended, its last 64 KiB."""
        node = news.node
        path = self.run_dir / node.log
        if self.show is None or node.type != "Pod" or node.finished is None or node.phase == news.before or not path.is_file():
            return
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _MOST_OUTPUT))
            self.show(node.path, log.read(_MOST_OUTPUT).decode(errors="replace"))

    def finish(self) -> None:
        with self.changed:
            self.over = True
            self.changed.notify_all()

    def play(self) -> None:
        for action in self.actions:
            with self.changed:
                self.changed.wait_for(lambda: self.over or self._is_time(action))  # noqa: B023  # waited for within the same turn
                if not self._is_time(action):
                    return
                self.changed.wait_for(lambda: self.over, action.wait)
            error = self._act(action)
            self.outcomes.append({"do": action.verb, "accepted": not error, "error": error})

    def _act(self, action: ScriptedAction) -> str:
        """Do the action and return why it was refused, or "" if it was accepted."""
        if not self.over:
            ticket = inbox.send(self.run_dir, action.verb, action.node, action.parameters, action.message)
            reply = inbox.wait(self.run_dir, ticket, _ANSWER_WITHIN)
            if reply is not None:
                return reply.error
        return refusal_after_end(action) if self.over else "no engine answered"

    def _is_time(self, action: ScriptedAction) -> bool:
        if action.when_node:
            return self.phases.get(action.when_node) == action.when_phase
        return self.suspended or not action.when_suspended


def refusal_after_end(action: ScriptedAction) -> str:
    """Return why Argo refuses an operator's action on a run that has ended, or "" for a bare resume, which it accepts.

    Source: SuspendWorkflow, ResumeWorkflow, updateSuspendedNode and patchShutdownStrategy in workflow/util/util.go of Argo 4.1.2.
    """
    if action.node or action.verb == "set":
        selector = f"displayName={action.node}"
        return f"currently, set only targets suspend nodes: no suspend nodes matching nodeFieldSelector: {selector}"
    refused = {
        "suspend": "cannot suspend completed workflows",
        "stop": "cannot shutdown a completed workflow",
        "terminate": "cannot shutdown a completed workflow",
    }
    return refused.get(action.verb, "")


def read_manifests(path: Path, *, runs_only: bool = True) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Return the Workflow of a YAML file, and its WorkflowTemplates by name.

    Templates may also be in a `workflowtemplate.yaml` beside the file. Without `runs_only` a single WorkflowTemplate stands for the
    Workflow. Raises ManifestRefusedError unless there is exactly one.
    """
    beside = path.with_name("workflowtemplate.yaml")
    documents_read = [document for file in (path, beside) if file == path or file.is_file() for document in documents.read(file)]
    objects = [document for document in documents_read if isinstance(document, dict)]
    runs = [document for document in objects if document.get("kind") == "Workflow"]
    templates = [document for document in objects if document.get("kind") == "WorkflowTemplate"]
    if not runs and not runs_only and len(templates) == 1:
        return templates[0], {}
    if len(runs) != 1:
        raise ManifestRefusedError([LintFinding(str(path), f"holds {len(runs)} objects of kind Workflow; exactly one is executed")])
    return runs[0], {_name(document) or f"template {number}": document for number, document in enumerate(templates, 1)}


def _name(document: Mapping[str, Any]) -> str:
    meta = document.get("metadata")
    return str(meta.get("name") or "") if isinstance(meta, Mapping) else ""


def execute_manifest(
    path: Path,
    record_file: Path | None = None,
    actions: Path | None = None,
    *,
    run_dir: Path | None = None,
    parallelism: int = 8,
    say: Callable[[str], object] | None = None,
    show: Callable[[str, str], object] | None = None,
) -> int:
    """Run a manifest to its end, write a record of its result to `record_file`, and return an exit code.

    `/tmp/` in commands becomes the attempt's own folder. `actions` is a file of operator actions in the form of the corpus. Without
    `run_dir` the run uses a temporary directory. The exit code is 0 (Succeeded), 65 (Failed), 1 (Error), or that of an engine
    error, whose sentence goes to `say` (by default standard error). `show` gets the name of each ended pod's node, and its
    output.
    """
    say = say or sys.stderr.write
    try:
        manifest, templates = read_manifests(path)
        script = read_actions(actions) if actions is not None else ()
        with tempfile.TemporaryDirectory(prefix="bringup-exec-", ignore_cleanup_errors=True) as scratch:
            directory = (run_dir or Path(scratch) / "run").absolute()
            return _execute(manifest, templates, directory, record_file, script, parallelism, show)
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
    show: Callable[[str, str], object] | None,
) -> int:
    script = _Script(run_dir, actions, show)
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
