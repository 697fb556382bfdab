"""The live view of a run on Argo: the same lines, fed by what its pods said last, since the store is in the home cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from steps.clients.store import Store
from steps.contract import announcement, approval
from steps.contract.last_word import Said
from workflows.cli.runs import live, planned
from workflows.engines.argo import last_words
from workflows.engines.argo.home import Where
from workflows.engines.argo.progress import JUDGE, VERDICT
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import NodeStatus

_BAD = ("Failed", "Error")


@dataclass
class AwayProgress(live.Progress):
    """Where records are not here yet, what pods said last tells, else a node's outputs and message."""

    words: dict[str, Said] = field(default_factory=dict)
    """What pods that ended well said last, by the full name of their node."""
    _heard: dict[tuple[str, str], dict[int, Said]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    """The line of each node that failed without a word: Argo goes on to write such a node while its pod ends."""

    def is_told_by_its_pod(self, node: NodeStatus) -> bool:
        """Whether a line of the view is in the node's pod, and has not been heard."""
        ended = node.type == "Pod" and node.phase == "Succeeded"
        return ended and node.template in self.templates and node.path not in self.words

    def told(self, stage: str, task: str) -> Mapping[int, Said]:
        """What was heard just now is newer than what was read here before."""
        return {**super().told(stage, task), **self._heard.get((stage, task), {})}

    def of_opening(self, node: NodeStatus) -> Said | None:
        """Its pod's word, else what was read here before."""
        return last_words.of_node(node) or super().of_opening(node)

    def take(self, node: NodeStatus) -> list[str]:
        """As for a local run."""
        said = last_words.of_node(node) or self.words.get(node.path)
        if said and node.template in self.templates:
            self._heard.setdefault(self.templates[node.template], {})[int(node.inputs.get("shard") or 0)] = said
        lines = super().take(node)
        if lines or node.finished is None or node.type != "Pod" or node.template not in self.templates:
            return lines
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if task == JUDGE:
            row.status = node.outputs.get(VERDICT) or "inconclusive"
            why = "" if row.status in ("pass", "skipped") else f"; why: bringup report {self.run}"
            return [f"{stage}: {row.status} ({node.finished - row.started:.1f} s){why}"]
        if task == approval.ANNOUNCE and node.phase in _BAD:
            return [f"{stage}: nobody could be told that it waits for an approval: bringup logs {stage}.{task}"]
        return self._unheard(node, f"{stage}: {task} {node.phase}: {node.message}") if node.phase in _BAD else []

    def _unheard(self, node: NodeStatus, line: str) -> list[str]:
        before, self._failed[node.path] = self._failed.get(node.path), line
        return [line] if line != before else []


def progress(folder: RunFolder, where: Where) -> AwayProgress:
    """Of a run whose tasks are known here; nothing is known here of an approval's evidence, which `approve` shows."""
    how = announcement.command(folder.name, namespace=where.namespace)
    return AwayProgress(planned.tasks(folder), folder.name, Store(folder.home.store), lambda _node: how)
