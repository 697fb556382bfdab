"""The pods of a run as objects: made when a process starts, with its log as it grows, and how it ended; podGC is played."""

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps.clients.kube.api import ApiError
from steps.contract.last_word import FILE
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import NODE_NAME, WORKFLOW_LABEL, stamp
from workflows.engines.local.calls import pod_name
from workflows.engines.local.model import Plan
from workflows.engines.local.paths import slug
from workflows.engines.local.state import PENDING, SUCCEEDED, Node, State
from workflows.rehearsal.argo_stand_in.kubelet import Place
from workflows.rehearsal.argo_stand_in.status import node_id

Object = dict[str, Any]
COMPLETED = "workflows.argoproj.io/completed"


@dataclass
class Pods:
    """Pod objects of one run. `shown` are nodes by path with the phase that their pod has now.

    `kept` is for how many seconds those stay that ended well, as podGC says; None: for good.
    """

    home: Home
    plan: Plan
    run_dir: Path
    owner: Object
    kept: float | None
    place: Place
    shown: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    _sent: dict[str, int] = field(default_factory=dict)
    _logs: bool = True
    _due: dict[str, float] = field(default_factory=dict)
    """When pods are to be deleted, by name, in seconds since 1970."""

    def show(self, state: State, ended: dict[str, float], began: float) -> None:
        """Bring the objects up to date; `ended` are pods that ended although their node runs on."""
        for node in state.nodes.values():
            if node.type == "Pod" and (node.launched or node.path in self.shown):
                self._one(node, ended.get(node.path), began)

    def _one(self, node: Node, ended: float | None, began: float) -> None:
        over = node.fulfilled or ended is not None
        phase = ("Succeeded" if node.phase == SUCCEEDED or ended else "Failed") if over else "Running"
        if self.shown.get(node.path) in ("Succeeded", "Failed", "Gone"):
            return
        if node.path not in self.shown and node.phase != PENDING:
            self._create(node)
        if node.path not in self.shown:
            return
        self._log(node)
        if self.shown[node.path] != phase:
            self._set(node, phase, ended or (began + node.finished if node.finished is not None else None))

    def collect(self) -> bool:
        """Delete the pods whose time has come; whether that of others is still to come."""
        for name in [name for name, due in self._due.items() if due <= time.time()]:
            self._delete(name)
            del self._due[name]
        return bool(self._due)

    def _delete(self, name: str) -> None:
        with _tolerated(404):
            self.home.ask(lambda kube: kube.delete(self.home.core("pods", name)))

    def last_word(self, path: str) -> str:
        """What the step left where a kubelet would read it, in the newest folder of its node."""
        left = sorted((self.run_dir / "out").glob(f"{slug(path)}.*/{FILE}"))
        return left[-1].read_text() if left else ""

    def lost(self, pod: str) -> str:
        """The node whose running pod was deleted, "" when that matters to nobody."""
        path = self.names.get(pod, "")
        if not path or self.shown.get(path) != "Running":
            return ""
        self.shown[path] = "Gone"
        return path

    def _create(self, node: Node) -> None:
        name = pod_name(self.plan, node.path, node.template_name)
        meta = {
            "name": name,
            "namespace": self.home.namespace,
            "labels": {WORKFLOW_LABEL: self.plan.name, COMPLETED: "false"},
            "annotations": {NODE_NAME: node.path, "workflows.argoproj.io/node-id": node_id(self.plan, node.path)},
            "ownerReferences": [self.owner],
        }
        container = {"name": "main", "image": "argo-stand-in", "command": list(node.template.container.command)}  # type: ignore[union-attr]
        spec = {**self.place.spec(), "restartPolicy": "Never", "containers": [container]}
        with _tolerated(409):
            self.home.ask(lambda kube: kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
        self.names[name] = node.path
        self.shown[node.path] = ""

    def _set(self, node: Node, phase: str, ended: float | None) -> None:
        name = pod_name(self.plan, node.path, node.template_name)
        code = node.outputs.exit_code or 0
        state: Object = {"running": {"startedAt": stamp(0)}}
        if phase != "Running":
            state = {
                "terminated": {"exitCode": code, "finishedAt": stamp(ended or 0), "reason": "Completed" if not code else "Error"}
            }
            state["terminated"] |= {"message": said} if (said := self.last_word(node.path)) else {}
        container = {"name": "main", "image": "argo-stand-in", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        patch = {"status": {"phase": phase, "containerStatuses": [container]}}
        with _tolerated(404):
            self.home.ask(lambda kube: kube.merge(f"{self.home.core('pods', name)}/status", patch))
            self.shown[node.path] = phase
            if node.fulfilled:
                self._result(node)
            if node.phase == SUCCEEDED and self.kept is not None:
                self._due[name] = (ended or 0) + self.kept

    def _result(self, node: Node) -> None:
        """The WorkflowTaskResult by which a real executor reports."""
        rows = [{"name": name, "value": value} for name, value in node.outputs.parameters.items() if value is not None]
        labels = {WORKFLOW_LABEL: self.plan.name, "workflows.argoproj.io/report-outputs-completed": "true"}
        name = node_id(self.plan, node.path)
        meta = {"name": name, "namespace": self.home.namespace, "labels": labels, "ownerReferences": [self.owner]}
        body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTaskResult", "metadata": meta, "phase": node.phase}
        with _tolerated(409):
            self.home.ask(lambda kube: kube.create({**body, "outputs": {"parameters": rows}}))

    def _log(self, node: Node) -> None:
        path = self.run_dir / "logs" / f"{slug(node.path)}.log"
        if not self._logs or not path.exists():
            return
        sent = self._sent.get(node.path, 0)
        with path.open("rb") as file:
            file.seek(sent)
            fresh = file.read()
        if fresh:
            self._sent[node.path] = sent + len(fresh)
            self._logs = self.place.write(self.home, pod_name(self.plan, node.path, node.template_name), fresh)


@contextlib.contextmanager
def _tolerated(status: int) -> Any:
    try:
        yield
    except ApiError as error:
        if error.status != status:
            raise
