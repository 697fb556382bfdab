"""A Workflow: a thread runs it on the embedded engine, another shows its state on the API and reads what operators write."""

import contextlib
import queue
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from steps.clients.kube.api import ApiError
from steps.errors import Refused, Temporary
from tests.argo_stand_in import volume_folders
from tests.argo_stand_in.pod_driver import PodDriver
from tests.argo_stand_in.pod_host import PodHost
from tests.argo_stand_in.pod_objects import RunPods
from tests.argo_stand_in.workflow_status import workflow_status
from workflows.engines.argo.home import Home, NoWorkflow
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.workflow_objects import compress_nodes, decompress_nodes
from workflows.engines.local import inbox
from workflows.engines.local.journal import FILE, Journal
from workflows.engines.local.manifest_parser import parse_plan as make_plan
from workflows.engines.local.result import News
from workflows.engines.local.run_settings import RunPaths, RunSettings, default_environment
from workflows.engines.local.run_state import RunBegan, RunState
from workflows.render.grammar.gotext import seconds

Object = dict[str, Any]
TICK = 0.1
"""Seconds between two looks at the logs and the engine's state."""
AGAIN = 0.5
"""Seconds between tries while the API server does not answer."""
DELETE_DELAY = "5s"
"""Argo's default for `podGCDeleteDelayDuration` in the controller's configuration."""
ANSWER = 10.0
GRACE = 3.0


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Options of the stand-in.

    `backoff` replaces every wait between attempts, `delete_delay` that of podGC. `withhold` maps templates to the seconds by which
    the first result of their pods is late. `compress` writes nodes into `compressedNodes`. `errands` runs pods that are not Argo's;
    it is off where a real kubelet runs them. `place` is the node on which pods are shown.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    backoff: str = ""
    delete_delay: str = ""
    withhold: Mapping[str, float] = field(default_factory=dict)
    compress: bool = False
    errands: bool = True
    parallelism: int = 4
    place: PodHost = field(default_factory=PodHost)


class WorkflowRun:
    """A Workflow from start to end; `done` is set once the API shows the final phase."""

    def __init__(
        self, address: HomeAddress, workflow: Object, template: Object | None, folder: Path, store: Path, behaviour: Behaviour
    ) -> None:
        self.name: str = workflow["metadata"]["name"]
        self.done = threading.Event()
        self._over = threading.Event()
        self._home = Home(address)
        self._behaviour = behaviour
        self._run_dir = (folder / "runs" / self.name).absolute()
        self._store = store
        self._news: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        self._changed = True
        self._written: RunState | None = None
        self._shown: Object = workflow.get("status") or {}
        self._shutdowns: set[str] = set()
        self._gates_closed_at: dict[str, str] = {}
        """Times at which operators closed gates, by node id; a controller keeps those that it finds."""
        self._object = workflow
        manifest, templates = _with_backoff(
            behaviour.backoff, *volume_folders.reached_here((workflow, template), address.namespace)
        )
        self._plan = make_plan(manifest, templates, behaviour.parallelism)
        spec = (template or manifest)["spec"]
        self._metadata: Object = spec.get("workflowMetadata") or {}
        paths = volume_folders.lay_out(self._home, spec.get("volumes") or (), self._run_dir / "mounts", store)
        self._settings = self._first_settings(manifest, templates, paths)
        self._driver: PodDriver | None = None
        owner = {"apiVersion": workflow["apiVersion"], "kind": "Workflow", "name": self.name, "uid": workflow["metadata"]["uid"]}
        kept = _kept(spec.get("podGC") or {}, behaviour.delete_delay)
        self._pods = RunPods(self._home, self._plan, self._run_dir, owner, kept, behaviour.place)
        self._engine_thread = threading.Thread(target=self._drive, name=f"engine-{self.name}", daemon=True)
        self._api_thread = threading.Thread(target=self._follow_api, name=f"api-{self.name}", daemon=True)

    def _first_settings(self, manifest: Object, templates: dict[str, Object], paths: RunPaths) -> RunSettings:
        folders = (str(paths.tasks), str(paths.fleet), str(paths.secrets), str(paths.store))
        return RunSettings(manifest, templates, folders, False, self._behaviour.parallelism, GRACE, secrets.token_hex(16))

    def start(self) -> None:
        """Start the run, or resume what an earlier stand-in left."""
        (self._run_dir / "inbox/answers").mkdir(parents=True, exist_ok=True)
        self._engine_thread.start()

    def on_change(self, workflow: Object) -> None:
        """Take in a change of the Workflow on the API."""
        self._news.put(workflow)

    def on_pod_deleted(self, pod: str) -> None:
        """Take in the deletion of a pod."""
        path = self._pods.lost(pod)
        if path and self._driver is not None:
            self._driver.lose(path)

    def end(self) -> None:
        """End the run with all its processes."""
        if self._engine_thread.is_alive():
            inbox.send(self._run_dir, "terminate", message="the stand-in ends")
        self._engine_thread.join(ANSWER + GRACE)
        self.done.set()
        self._over.set()
        self._news.put(None)
        if self._api_thread.is_alive():
            self._api_thread.join(ANSWER)

    # --- the engine ---------------------------------------------------------------------------------------------------

    def _observe(self, _news: News) -> None:
        self._changed = True

    def _drive(self) -> None:
        """Run the engine, or resume what an earlier stand-in left. The journal belongs to this thread."""
        resumes = (self._run_dir / FILE).exists()
        with self._journal(resumes) as journal:
            settings = msgspec.json.decode(journal.meta["settings"], type=RunSettings)
            environment = {**default_environment(), **self._behaviour.environment}
            driver = PodDriver(self._run_dir, journal, settings, environment, self._observe, self._behaviour.withhold)
            self._driver = driver
            self._api_thread.start()
            if resumes:
                driver.take_over()
            else:
                driver.drive([RunBegan(at=0.0)])
        self._changed = True

    def _journal(self, resumes: bool) -> Journal:
        if resumes:
            return Journal.open(self._run_dir)
        settings = msgspec.json.encode(self._settings).decode()
        return Journal.create(self._run_dir, {"settings": settings, "name": self.name, "began": str(time.time()), "notes": "[]"})

    # --- the API ------------------------------------------------------------------------------------------------------

    def _follow_api(self) -> None:
        while not self.done.is_set():
            try:
                self._update()
                self._pods.collect()
            except (Temporary, Refused):
                self._changed = True
                self.done.wait(AGAIN)
            except NoWorkflow:
                self.done.set()  # deleted: Argo ends its pods as well
                inbox.send(self._run_dir, "terminate", message="the Workflow was deleted")
        self._collect()

    def _collect(self) -> None:
        """Delete pods by podGC until the last one is gone; pods may outlive their run."""
        left = True
        while left and not self._over.wait(TICK):
            with contextlib.suppress(Temporary, Refused):
                left = self._pods.collect()

    def _update(self) -> None:
        try:
            workflow = self._news.get(timeout=TICK)
        except queue.Empty:
            workflow = {}
        if workflow:
            self._absorb(workflow)
        driver = self._driver
        assert driver is not None
        changed, self._changed = self._changed, False  # before the state is read: what changes from here on is for the next turn
        state = driver.state
        if not state.nodes and not state.finished:
            self._changed = self._changed or changed
            return
        self._pods.show(state, driver.ended, driver.began)
        if changed or state is not self._written:
            if not self._write(workflow_status(self._plan, state, driver.began, self._pods.last_word)):
                self._changed = True  # somebody else wrote: once more over what that was
                return
            self._written = state
            if state.finished:
                self.done.set()

    def _absorb(self, workflow: Object) -> None:
        """Pass to the engine what operators wrote on the Workflow, before the next status is written over it."""
        self._object = workflow
        spec = workflow.get("spec") or {}
        verb = {"Stop": "stop", "Terminate": "terminate"}.get(spec.get("shutdown") or "", "")
        if verb and verb not in self._shutdowns:
            self._shutdowns.add(verb)
            self._send(verb, "", {}, "")
        nodes = _nodes(workflow.get("status") or {})
        for key, before in _nodes(self._shown).items():
            now = nodes.get(key, before)
            if before["type"] == "Suspend" and before["phase"] == "Running" and now != before:
                self._gate(now, before)
        self._shown = workflow.get("status") or {}

    def _gate(self, now: Object, before: Object) -> None:
        """Pass an operator's change of a suspend node to the engine. Argo's own tools write it in this form."""
        if now.get("finishedAt"):
            self._gates_closed_at[now["id"]] = now["finishedAt"]
        old = _values(before)
        fresh = {name: value for name, value in _values(now).items() if value is not None and old.get(name) is None}
        if now["phase"] == "Failed":
            self._send("stop", now["name"], {}, now.get("message", ""))
        elif now["phase"] == "Succeeded" and set(fresh) == set(old):
            self._send("approve", now["name"], fresh, now.get("message", ""))
        else:
            if fresh:
                self._send("set", now["name"], fresh, "")
            if now["phase"] == "Succeeded":
                self._send("resume", now["name"], {}, now.get("message", ""))

    def _send(self, verb: str, node: str, parameters: Mapping[str, str], message: str) -> None:
        ticket = inbox.send(self._run_dir, verb, node, parameters, message)
        inbox.wait(self._run_dir, ticket, ANSWER)
        self._changed = True

    def _write(self, shown: Object) -> bool:
        """Write the status in one patch that checks the resourceVersion. Return False if somebody else wrote first, and take that
        in.
        """
        for key, moment in self._gates_closed_at.items():
            shown["nodes"][key]["finishedAt"] = moment
        if self._behaviour.compress:
            shown = {**shown, "nodes": None, "compressedNodes": compress_nodes(msgspec.json.encode(shown["nodes"]))}
        completed = shown["finishedAt"] is not None
        labels = {"workflows.argoproj.io/phase": shown["phase"], "workflows.argoproj.io/completed": str(completed).lower()}
        meta = {"resourceVersion": self._object["metadata"]["resourceVersion"]}
        meta |= {
            "labels": {**(self._metadata.get("labels") or {}), **labels},
            "annotations": self._metadata.get("annotations") or {},
        }
        patch = {"metadata": meta, "status": shown}
        try:
            self._object = self._home.ask(lambda kube: kube.merge(self._home.workflows(self.name), patch))
            self._shown = self._object["status"]
            return True
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self._absorb(msgspec.json.decode(self._home.raw_workflow(self.name)))
            return False


def _kept(collection: Object, replaced: str) -> float | None:
    """Return for how many seconds `podGC` keeps pods that succeeded; None means for good."""
    if collection.get("strategy") != "OnPodSuccess":
        return None
    return seconds(replaced or collection.get("deleteDelayDuration") or DELETE_DELAY)


def _with_backoff(duration: str, workflow: Object, template: Object | None) -> tuple[Object, dict[str, Object]]:
    """Return the manifest and its template as the engine reads them: without status, with the waits between attempts replaced."""
    manifest = {key: workflow[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    manifest["spec"] = {key: value for key, value in workflow["spec"].items() if key not in ("shutdown", "suspend")}
    templates = {} if template is None else {template["metadata"]["name"]: template}
    for document in (manifest, *templates.values()) if duration else ():
        for entry in document["spec"].get("templates") or ():
            if "backoff" in (entry.get("retryStrategy") or {}):
                entry["retryStrategy"]["backoff"] = {"duration": duration}
    return manifest, templates


def _nodes(shown: Object) -> dict[str, Object]:
    if shown.get("compressedNodes"):
        workflow: dict[str, Object] = msgspec.json.decode(decompress_nodes(shown["compressedNodes"]))
        return workflow
    return shown.get("nodes") or {}


def _values(node: Object) -> dict[str, str | None]:
    rows = (node.get("outputs") or {}).get("parameters") or ()
    return {row["name"]: row.get("value") for row in rows}
