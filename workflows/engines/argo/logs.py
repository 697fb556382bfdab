"""Read the logs of a run's tasks: from their pods while these exist, from the run store afterwards."""

import re
from dataclasses import dataclass, field

from steps.clients.kube.api import ApiError
from steps.clients.store import Store
from steps.contract.runs import log_keys
from steps.errors import Refused, StepError, Temporary
from workflows.engines.argo import pull, run_pods
from workflows.engines.argo.home import Home
from workflows.engines.argo.run_pods import MAIN, RunPod
from workflows.engines.argo.workflow_objects import Workflow, node_status
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import RunNodeStatus


def logs(home: Home, workflow: Workflow, folder: RunFolder, task: str) -> list[tuple[str, str]]:
    """Return pairs of node name (or store key) and log text in the order in which tasks started, each text once.

    `task` is a part of `STAGE.TASK` that selects tasks. The store is read only if a task's pod is gone or its log cannot be read
    now. Raises HelperPodFailed, Damaged or Unreachable if nothing at all can be read.
    """
    reader, pods_by_node = _PodLogReader(home), run_pods.pods(home, workflow.metadata.name)
    texts, stored, gone = list[tuple[str, str]](), set[str](), workflow.status.phase == pull.GONE
    for node in (node for node in _pod_nodes(workflow) if is_wanted(node.template, task)):
        pod = pods_by_node.get(node.path)
        text = reader.text(pod) if pod else None
        if text is None:
            gone = gone or node.phase not in ("", "Pending")
            if pod and (why := reader.lost.get(pod.metadata.name)):
                texts.append((node.path, f"(its pod's log cannot be read now: {why})"))
            continue
        stored |= set(log_keys.KEPT.findall(text))
        texts.append((node.path, log_keys.KEPT.sub("", text).rstrip() or log_keys.SILENT))
    if gone:
        texts += _from_store(home, workflow, folder, task, stored, alone=len(texts) == len(reader.lost))
    return texts


def starter_logs(home: Home, workflow: Workflow) -> list[tuple[str, str]]:
    """Return pairs of node name and log text of a Workflow that only starts a run.

    For a pod that is gone the text says how it ended, because such logs are not kept in the run store.
    """
    reader, pods_by_node = _PodLogReader(home), run_pods.pods(home, workflow.metadata.name)
    nodes = _pod_nodes(workflow)
    texts = [(node, reader.text(pods_by_node[node.path]) if node.path in pods_by_node else None) for node in nodes]
    return [(node.path, text or f"(its log is gone; it ended as {node.phase} {node.message})") for node, text in texts]


def _pod_nodes(workflow: Workflow) -> list[RunNodeStatus]:
    nodes = workflow.nodes()
    return sorted((node_status(node, nodes) for node in nodes.values() if node.type == "Pod"), key=lambda node: node.started)


def _from_store(
    home: Home, workflow: Workflow, folder: RunFolder, task: str, shown: set[str], *, alone: bool
) -> list[tuple[str, str]]:
    """Return pairs of store key and text of the selected logs that are not in `shown`.

    If the store cannot be read, the error is raised only if nothing else is shown (`alone`); else a line says so.
    """
    try:
        pull.pull(home, workflow, folder)
    except StepError as error:
        if alone:
            raise
        return [("the run store", f"(it cannot be read now: {error})")]
    store = Store(folder.home.store)
    hidden = (key for key in store.keys(log_keys.folder(workflow.metadata.name)) if key not in shown)
    keys = [key for key in hidden if is_wanted("_".join(key.split("/")[3:5]), task)]
    return [(key, (store.read(key) or b"").decode(errors="replace").rstrip()) for key in keys]


ARGOS = re.compile(r"^time=\S+ level=\w+ msg=.* argo=true(?: .*)?(?:\n|\Z)|^Error: exit status \d+\n?\Z", re.MULTILINE)
"""Pattern of lines that Argo's executor adds to a container's log (workflow/executor/os-specific, cmd/argoexec in Argo's source).

Their fields come in any order, so `argo=true` may stand before or after the message.
"""


@dataclass
class _PodLogReader:
    """A reader of pod logs that asks a kubelet that does not answer only once, since further requests would time out as well."""

    home: Home
    lost: dict[str, str] = field(default_factory=dict)
    """Pod name → reason why its log cannot be read now."""
    _silent: dict[str, str] = field(default_factory=dict)

    def text(self, pod: RunPod) -> str | None:
        """Return the log of a pod; None if the pod is gone or not begun, access is forbidden, or the kubelet does not answer.

        In the last case `lost` has the reason.
        """
        name, node = pod.metadata.name, pod.spec.node_name or pod.metadata.name
        if node not in self._silent:
            try:
                log_text = self.home.fetch(f"{self.home.core('pods', name)}/log", {"container": MAIN}).decode(errors="replace")
                return ARGOS.sub("", log_text)
            except (ApiError, Refused):
                return None
            except Temporary as error:
                self._silent[node] = str(error)
        self.lost[name] = self._silent[node]
        return None


def is_wanted(named: str, task: str) -> bool:
    """Return True if `task`, a part of `STAGE.TASK`, occurs in a template name or `STAGE_TASK`; `.`, `-` and `_` are equal."""
    return task.replace(".", "_").replace("-", "_") in named.replace("-", "_")
