"""The live view of a run on Argo: the lines of a local run, fed by last words of pods, since the store is in the home cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from steps.clients.store import Store
from steps.contract import announcement, approval
from steps.contract.last_word import Said
from workflows.cli.runs import live, planned
from workflows.engines.argo import run_pods
from workflows.engines.argo.home import HomeAddress
from workflows.engines.argo.progress import JUDGE, VERDICT
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import RunNodeStatus

_BAD = ("Failed", "Error")


@dataclass
class AwayProgress(live.Progress):
    """Progress of a run on Argo: by records that are here, by last words of pods, and by a node's outputs and message."""

    words: dict[str, Said] = field(default_factory=dict)
    """Last words of pods that ended well, by the full name of their node."""
    _heard: dict[tuple[str, str], dict[int, Said]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    """The line of each node that failed without a last word: Argo updates such a node again while its pod ends."""

    def is_told_by_its_pod(self, node: RunNodeStatus) -> bool:
        """Return True if the node's pod has a line for the view that was not read yet."""
        ended = node.type == "Pod" and node.phase == "Succeeded"
        return ended and node.template in self.templates and node.path not in self.words

    def told(self, stage: str, task: str) -> Mapping[int, Said]:
        """Return the last words of a task by shard; those read from pods replace older ones from records."""
        return {**super().told(stage, task), **self._heard.get((stage, task), {})}

    def of_opening(self, node: RunNodeStatus) -> Said | None:
        """Return the last word of the task `open`, from its pod or from a record that was read before."""
        return run_pods.of_node(node) or super().of_opening(node)

    def take(self, node: RunNodeStatus) -> list[str]:
        """Take one node's news and return the plain lines for it."""
        word = run_pods.of_node(node) or self.words.get(node.path)
        if word and node.template in self.templates:
            self._heard.setdefault(self.templates[node.template], {})[int(node.inputs.get("shard") or 0)] = word
        lines = super().take(node)
        if lines or node.finished is None or node.type != "Pod" or node.template not in self.templates:
            return lines
        # the pod left no last word, so outputs and message of the node must do
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if task == JUDGE:
            row.status = node.outputs.get(VERDICT) or "inconclusive"
            why = "" if row.status in ("pass", "skipped") else f"; why: bringup report {self.run}"
            return [f"{stage}: {row.status} ({node.finished - row.started:.1f} s){why}"]
        if task == approval.ANNOUNCE and node.phase in _BAD:
            return [f"{stage}: nobody could be told that it waits for an approval: bringup logs {stage}.{task}"]
        return self._unheard(node, f"{stage}: {task} {node.phase}: {node.message}") if node.phase in _BAD else []

    def _unheard(self, node: RunNodeStatus, line: str) -> list[str]:
        before, self._failed[node.path] = self._failed.get(node.path), line
        return [line] if line != before else []


def progress(folder: RunFolder, where: HomeAddress) -> AwayProgress:
    """Return the progress of a run whose tasks are known here. Evidence of an approval is not known here: `approve` shows it."""
    how = announcement.command(folder.name, namespace=where.namespace)
    return AwayProgress(planned.tasks(folder), folder.name, Store(folder.home.store), lambda _node: how)
