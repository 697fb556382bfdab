"""Pod objects of a run: created when a process starts, with its log and its end; podGC deletes them."""

import contextlib
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steps.clients.kube.api import ApiError
from steps.contract.runs.last_word import FILE
from tests.argo_stand_in.pod_host import PodHost
from tests.argo_stand_in.workflow_status import node_id
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import NODE_NAME, WORKFLOW_LABEL, stamp
from workflows.engines.local.calls import pod_name
from workflows.engines.local.model import WorkflowPlan
from workflows.engines.local.run_settings import slug
from workflows.engines.local.run_state import PENDING, SUCCEEDED, RunNode, RunState

Object = dict[str, Any]
COMPLETED = "workflows.argoproj.io/completed"


@dataclass
class RunPods:
    """The pod objects of one run. `shown` maps node paths to the phase that their pod shows.

    `kept` is for how many seconds succeeded pods stay, as podGC says; None means for good.
    """

    home: Home
    plan: WorkflowPlan
    run_dir: Path
    owner: Object
    kept: float | None
    place: PodHost
    shown: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    _sent: dict[str, int] = field(default_factory=dict)
    _logs: bool = True
    _due: dict[str, float] = field(default_factory=dict)
    """Times at which pods are to be deleted, by name, in seconds since 1970."""

    def show(self, state: RunState, ended: dict[str, float], began: float) -> None:
        """Bring the pod objects up to date. `ended` maps nodes that still run to the time at which their pod ended."""
        for node in state.nodes.values():
            if node.type == "Pod" and (node.launched or node.path in self.shown):
                self._show_node(node, ended.get(node.path), began)

    def _show_node(self, node: RunNode, ended: float | None, began: float) -> None:
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
        """Delete the pods whose time has come. Return True if others are still to be deleted."""
        for name in [name for name, due in self._due.items() if due <= time.time()]:
            self._delete(name)
            del self._due[name]
        return bool(self._due)

    def _delete(self, name: str) -> None:
        with _tolerate(404):
            self.home.ask(lambda kube: kube.delete(self.home.core("pods", name)))

    def last_word(self, path: str) -> str:
        """Return the termination message of a step from the newest output folder of its node; empty if there is none."""
        files = sorted((self.run_dir / "out").glob(f"{slug(path)}.*/{FILE}"))
        return files[-1].read_text() if files else ""

    def lost(self, pod: str) -> str:
        """Return the node whose running pod was deleted; empty if no running node is affected."""
        path = self.names.get(pod, "")
        if not path or self.shown.get(path) != "Running":
            return ""
        self.shown[path] = "Gone"
        return path

    def _create(self, node: RunNode) -> None:
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
        with _tolerate(409):
            self.home.ask(lambda kube: kube.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}))
        self.names[name] = node.path
        self.shown[node.path] = ""

    def _set(self, node: RunNode, phase: str, ended: float | None) -> None:
        name = pod_name(self.plan, node.path, node.template_name)
        code = node.outputs.exit_code or 0
        state: Object = {"running": {"startedAt": stamp(0)}}
        if phase != "Running":
            state = {
                "terminated": {"exitCode": code, "finishedAt": stamp(ended or 0), "reason": "Completed" if not code else "Error"}
            }
            state["terminated"] |= {"message": message} if (message := self.last_word(node.path)) else {}
        container = {"name": "main", "image": "argo-stand-in", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        patch = {"status": {"phase": phase, "containerStatuses": [container]}}
        with _tolerate(404):
            self.home.ask(lambda kube: kube.merge(f"{self.home.core('pods', name)}/status", patch))
            self.shown[node.path] = phase
            if node.fulfilled:
                self._result(node)
            if node.phase == SUCCEEDED and self.kept is not None:
                self._due[name] = (ended or 0) + self.kept

    def _result(self, node: RunNode) -> None:
        """Create the WorkflowTaskResult by which a real executor reports."""
        rows = [{"name": name, "value": value} for name, value in node.outputs.parameters.items() if value is not None]
        labels = {WORKFLOW_LABEL: self.plan.name, "workflows.argoproj.io/report-outputs-completed": "true"}
        name = node_id(self.plan, node.path)
        meta = {"name": name, "namespace": self.home.namespace, "labels": labels, "ownerReferences": [self.owner]}
        body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "WorkflowTaskResult", "metadata": meta, "phase": node.phase}
        with _tolerate(409):
            self.home.ask(lambda kube: kube.create({**body, "outputs": {"parameters": rows}}))

    def _log(self, node: RunNode) -> None:
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
def _tolerate(status: int) -> Any:
    try:
        yield
    except ApiError as error:
        if error.status != status:
            raise
