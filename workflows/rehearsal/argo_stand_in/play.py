"""One Workflow: the embedded engine runs it in a thread; another shows its state on the API and takes what operators write."""

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
from workflows.engines.argo.home import Home, NoWorkflow, Where
from workflows.engines.argo.objects import packed, unpacked
from workflows.engines.local import inbox
from workflows.engines.local.journal import FILE, Journal
from workflows.engines.local.parse import plan as make_plan
from workflows.engines.local.paths import RunPaths
from workflows.engines.local.result import News
from workflows.engines.local.settings import Settings, default_environment
from workflows.engines.local.state import RunBegan, State
from workflows.rehearsal.argo_stand_in import mounts
from workflows.rehearsal.argo_stand_in.driver import PodDriver
from workflows.rehearsal.argo_stand_in.kubelet import Place
from workflows.rehearsal.argo_stand_in.pods import Pods
from workflows.rehearsal.argo_stand_in.status import status
from workflows.render.grammar.gotext import seconds

Object = dict[str, Any]
TICK = 0.1
"""Seconds between two looks at logs and at a state that changed."""
AGAIN = 0.5
"""Seconds until the next try when the API server does not answer."""
DELETE_DELAY = "5s"
"""Argo's default (`podGCDeleteDelayDuration` of its controller's configuration)."""
ANSWER = 10.0
GRACE = 3.0


@dataclass(frozen=True, kw_only=True)
class Ways:
    """How the stand-in behaves. `backoff` replaces every wait between attempts, `delete_delay` podGC's; `withhold` maps templates
    to the seconds by which the first result of one of their pods is late; `compress` puts the nodes into `compressedNodes`;
    `errands`: whether pods that are not Argo's are run as well (off where a real kubelet does it); `place` is where
    pods are shown."""

    environment: Mapping[str, str] = field(default_factory=dict)
    backoff: str = ""
    delete_delay: str = ""
    withhold: Mapping[str, float] = field(default_factory=dict)
    compress: bool = False
    errands: bool = True
    parallelism: int = 4
    place: Place = field(default_factory=Place)


class Play:
    """One Workflow from its start to its end; `done` is set when the API shows the final phase."""

    def __init__(self, where: Where, found: Object, template: Object | None, folder: Path, store: Path, ways: Ways) -> None:
        self.name: str = found["metadata"]["name"]
        self.done = threading.Event()
        self._over = threading.Event()
        self._home = Home(where)
        self._ways = ways
        self._run_dir = (folder / "runs" / self.name).absolute()
        self._store = store
        self._news: queue.SimpleQueue[Object | None] = queue.SimpleQueue()
        self._changed = True
        self._written: State | None = None
        self._shown: Object = found.get("status") or {}
        self._asked: set[str] = set()
        self._closed: dict[str, str] = {}
        """When operators closed gates, by node id: a controller leaves what it finds there."""
        self._object = found
        manifest, templates = _with_backoff(ways.backoff, found, template)
        self._plan = make_plan(manifest, templates, ways.parallelism)
        spec = (template or manifest)["spec"]
        self._noted: Object = spec.get("workflowMetadata") or {}
        paths = mounts.lay_out(self._home, spec.get("volumes") or (), self._run_dir / "mounts", store)
        self._settings = self._first_settings(manifest, templates, paths)
        self._driver: PodDriver | None = None
        owner = {"apiVersion": found["apiVersion"], "kind": "Workflow", "name": self.name, "uid": found["metadata"]["uid"]}
        kept = _kept(spec.get("podGC") or {}, ways.delete_delay)
        self._pods = Pods(self._home, self._plan, self._run_dir, owner, kept, ways.place)
        self._engine = threading.Thread(target=self._drive, name=f"engine-{self.name}", daemon=True)
        self._keeper = threading.Thread(target=self._keep, name=f"keeper-{self.name}", daemon=True)

    def _first_settings(self, manifest: Object, templates: dict[str, Object], paths: RunPaths) -> Settings:
        folders = (str(paths.tasks), str(paths.fleet), str(paths.secrets), str(paths.store))
        return Settings(manifest, templates, folders, False, self._ways.parallelism, GRACE, secrets.token_hex(16))

    def start(self) -> None:
        """Begin, or go on with what an earlier stand-in left."""
        (self._run_dir / "inbox/answers").mkdir(parents=True, exist_ok=True)
        self._engine.start()

    def seen(self, found: Object) -> None:
        """The Workflow changed on the API."""
        self._news.put(found)

    def pod_gone(self, pod: str) -> None:
        """A pod was deleted."""
        path = self._pods.lost(pod)
        if path and self._driver is not None:
            self._driver.lose(path)

    def end(self) -> None:
        """Give up: whatever runs is ended."""
        if self._engine.is_alive():
            inbox.send(self._run_dir, "terminate", message="the stand-in ends")
        self._engine.join(ANSWER + GRACE)
        self.done.set()
        self._over.set()
        self._news.put(None)
        if self._keeper.is_alive():
            self._keeper.join(ANSWER)

    # --- the engine ---------------------------------------------------------------------------------------------------

    def _observe(self, _news: News) -> None:
        self._changed = True

    def _drive(self) -> None:
        """Begin, or take over what an earlier stand-in left; the journal belongs to this thread."""
        returns = (self._run_dir / FILE).exists()
        with self._journal(returns) as journal:
            settings = msgspec.json.decode(journal.meta["settings"], type=Settings)
            environment = {**default_environment(), **self._ways.environment}
            driver = PodDriver(self._run_dir, journal, settings, environment, self._observe, self._ways.withhold)
            self._driver = driver
            self._keeper.start()
            if returns:
                driver.take_over()
            else:
                driver.drive([RunBegan(at=0.0)])
        self._changed = True

    def _journal(self, returns: bool) -> Journal:
        if returns:
            return Journal.open(self._run_dir)
        settings = msgspec.json.encode(self._settings).decode()
        return Journal.create(self._run_dir, {"settings": settings, "name": self.name, "began": str(time.time()), "notes": "[]"})

    # --- the API ------------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self.done.is_set():
            try:
                self._turn()
                self._pods.collect()
            except (Temporary, Refused):
                self._changed = True
                self.done.wait(AGAIN)
            except NoWorkflow:
                self.done.set()  # deleted: Argo ends its pods as well
                inbox.send(self._run_dir, "terminate", message="the Workflow was deleted")
        self._collect()

    def _collect(self) -> None:
        """Pods may outlive their run: stay until the last one that podGC takes is gone."""
        left = True
        while left and not self._over.wait(TICK):
            with contextlib.suppress(Temporary, Refused):
                left = self._pods.collect()

    def _turn(self) -> None:
        try:
            found = self._news.get(timeout=TICK)
        except queue.Empty:
            found = {}
        if found:
            self._absorb(found)
        driver = self._driver
        assert driver is not None
        changed, self._changed = self._changed, False  # before the state is read: what changes from here on is for the next turn
        state = driver.state
        if not state.nodes and not state.finished:
            self._changed = self._changed or changed
            return
        self._pods.show(state, driver.ended, driver.began)
        if changed or state is not self._written:
            if not self._write(status(self._plan, state, driver.began, self._pods.last_word)):
                self._changed = True  # somebody else wrote: once more over what that was
                return
            self._written = state
            if state.finished:
                self.done.set()

    def _absorb(self, found: Object) -> None:
        """What operators wrote on the Workflow goes to the engine before anything is written over it."""
        self._object = found
        spec = found.get("spec") or {}
        verb = {"Stop": "stop", "Terminate": "terminate"}.get(spec.get("shutdown") or "", "")
        if verb and verb not in self._asked:
            self._asked.add(verb)
            self._ask(verb, "", {}, "")
        nodes = _nodes(found.get("status") or {})
        for key, before in _nodes(self._shown).items():
            now = nodes.get(key, before)
            if before["type"] == "Suspend" and before["phase"] == "Running" and now != before:
                self._gate(now, before)
        self._shown = found.get("status") or {}

    def _gate(self, now: Object, before: Object) -> None:
        """A suspend node as an operator left it; Argo's own tools write in just this way."""
        if now.get("finishedAt"):
            self._closed[now["id"]] = now["finishedAt"]
        old = _values(before)
        fresh = {name: value for name, value in _values(now).items() if value is not None and old.get(name) is None}
        if now["phase"] == "Failed":
            self._ask("stop", now["name"], {}, now.get("message", ""))
        elif now["phase"] == "Succeeded" and set(fresh) == set(old):
            self._ask("approve", now["name"], fresh, now.get("message", ""))
        else:
            if fresh:
                self._ask("set", now["name"], fresh, "")
            if now["phase"] == "Succeeded":
                self._ask("resume", now["name"], {}, now.get("message", ""))

    def _ask(self, verb: str, node: str, parameters: Mapping[str, str], message: str) -> None:
        ticket = inbox.send(self._run_dir, verb, node, parameters, message)
        inbox.wait(self._run_dir, ticket, ANSWER)
        self._changed = True

    def _write(self, shown: Object) -> bool:
        """One resource-version-checked patch; False where somebody wrote meanwhile, which is taken in now."""
        for key, moment in self._closed.items():
            shown["nodes"][key]["finishedAt"] = moment
        if self._ways.compress:
            shown = {**shown, "nodes": None, "compressedNodes": packed(msgspec.json.encode(shown["nodes"]))}
        completed = shown["finishedAt"] is not None
        labels = {"workflows.argoproj.io/phase": shown["phase"], "workflows.argoproj.io/completed": str(completed).lower()}
        meta = {"resourceVersion": self._object["metadata"]["resourceVersion"]}
        meta |= {"labels": {**(self._noted.get("labels") or {}), **labels}, "annotations": self._noted.get("annotations") or {}}
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
    """For how many seconds pods that ended well stay, by a `podGC`; None: for good."""
    if collection.get("strategy") != "OnPodSuccess":
        return None
    return seconds(replaced or collection.get("deleteDelayDuration") or DELETE_DELAY)


def _with_backoff(duration: str, found: Object, template: Object | None) -> tuple[Object, dict[str, Object]]:
    """The manifest as the engine takes it: no status, the template beside it, waits between attempts replaced."""
    manifest = {key: found[key] for key in ("apiVersion", "kind", "metadata", "spec")}
    manifest["spec"] = {key: value for key, value in found["spec"].items() if key not in ("shutdown", "suspend")}
    templates = {} if template is None else {template["metadata"]["name"]: template}
    for document in (manifest, *templates.values()) if duration else ():
        for one in document["spec"].get("templates") or ():
            if "backoff" in (one.get("retryStrategy") or {}):
                one["retryStrategy"]["backoff"] = {"duration": duration}
    return manifest, templates


def _nodes(shown: Object) -> dict[str, Object]:
    if shown.get("compressedNodes"):
        found: dict[str, Object] = msgspec.json.decode(unpacked(shown["compressedNodes"]))
        return found
    return shown.get("nodes") or {}


def _values(node: Object) -> dict[str, str | None]:
    rows = (node.get("outputs") or {}).get("parameters") or ()
    return {row["name"]: row.get("value") for row in rows}
