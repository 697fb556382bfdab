"""State of a run's live view by stage: tasks from the plan, progress from the engine's news and the store's records."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.plain_text import count
from steps.contract.runs import approval, last_word
from steps.contract.runs.last_word import Said
from steps.contract.verdict import Status
from workflows.engines.folders import RunFolder
from workflows.engines.local.result import RunNodeStatus
from workflows.render import names

OPEN = names.template(run_records.STAGE, run_records.OPEN)
"""Template of the task `open`, the first of every run, which belongs to no stage."""


_OMITTED = "Omitted"
"""Phase of the nodes of stages that never began, since one before them failed or was cancelled."""


_LISTED = 20
"""Size of a graph up to which each of its tasks gets a line; of a larger one a line tells of each tenth."""
_TENTHS = 10


def planned_tasks(folder: RunFolder) -> dict[str, list[str]]:
    """Return the names of the tasks by stage, both in running order; empty if this machine has no plan of the run."""
    return {stage["id"]: [task["name"] for task in stage.get("tasks", ())] for stage in _planned_stages(folder)}


def planned_graphs(folder: RunFolder) -> dict[tuple[str, str], int]:
    """Return the number of pods or processes of each task that runs as a graph, by stage and task."""
    return {(stage["id"], task): size for stage in _planned_stages(folder) for task, size in stage.get("graphs", {}).items()}


def _planned_stages(folder: RunFolder) -> list[dict[str, Any]]:
    path = folder.inputs / "tasks" / run_records.PLAN_FILE
    stages: list[dict[str, Any]] = msgspec.json.decode(path.read_bytes())["stages"] if path.exists() else []
    return stages


def progress(folder: RunFolder, nodes: Iterable[RunNodeStatus]) -> str:
    """Return how far a run is, in stages and tasks of the whole plan, as in `stage 4 of 9, 31 of 118 tasks ended`.

    A task over shards counts once, and has ended if all its nodes have. The text is empty without a copy of the plan.
    """
    planned = planned_tasks(folder)
    if not planned:
        return ""
    open_by_template: dict[str, bool] = {}
    for node in nodes:
        if node.phase == _OMITTED:
            continue
        open_by_template[node.template] = open_by_template.get(node.template, False) or node.finished is None
    stages = list(planned)
    templates = [names.template(stage, task) for stage in stages for task in planned[stage]]
    begun = [number for number, stage in enumerate(stages, 1) if names.dashed(stage) in open_by_template]
    ended = sum(open_by_template.get(template) is False for template in templates)
    return f"stage {max(begun, default=0)} of {len(stages)}, {ended} of {count(len(templates), 'task')} ended"


@dataclass
class StageRow:
    """A row of the live view: state of one stage.

    `nodes` is passed/judged; `started` and `finished` are Unix times (0.0: not yet).
    """

    status: str = ""
    task: str = ""
    nodes: str = ""
    started: float = 0.0
    finished: float = 0.0
    reason: str = ""


@dataclass
class Progress:
    """The state of a run's live view. Each piece of news updates it; printing is left to the view."""

    tasks: Mapping[str, Iterable[str]]
    """Names of each stage's tasks, the stages in running order."""
    run: str
    store: Store
    how: Callable[[str], str]
    """Function that returns the command which answers an approval, given the name of its suspend node."""
    rows: dict[str, StageRow] = field(default_factory=dict)
    templates: dict[str, tuple[str, str]] = field(default_factory=dict)
    last_words: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """Last text that was printed for a shard, by (stage, task, shard)."""
    graphs: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number of pods or processes of each task that runs as a graph, by (stage, task)."""
    built: dict[tuple[str, str], dict[int, bool]] = field(default_factory=dict)
    """Shards of graphs that have ended, and True for those that passed, by (stage, task)."""

    def __post_init__(self) -> None:
        for stage, named in self.tasks.items():
            self.rows[stage] = StageRow()
            self.templates[f"{approval.NODE_PREFIX}{names.dashed(stage)}"] = (stage, "approval")
            for task in (*named, *approval.TASKS):
                self.templates[names.template(stage, task)] = (stage, task)

    def take(self, node: RunNodeStatus) -> list[str]:
        """Update the state by a node's news and return the lines to print for it."""
        if node.template == OPEN and node.type == "Pod" and node.phase in ("Failed", "Error"):
            word = self.of_opening(node)
            why = f"{node.message}; why: bringup logs {run_records.STAGE}.{run_records.OPEN} --run {self.run}"
            return [f"{run_records.OPEN}: {word.text if word else f'{node.phase}: {why}'}"]
        if node.template not in self.templates or node.type not in ("Pod", "Suspend"):
            return []
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if task == approval.ANNOUNCE:  # it runs beside the wait, which the row shows
            return self._ended(row, stage, task, 0) if node.finished is not None else []
        if node.type == "Pod":  # the time that a person takes to approve does not count for the stage
            row.started = row.started or node.started
        if node.finished is None:
            row.task = f"{task} {_graph_name(node)}" if (stage, task) in self.graphs else task
            row.status = "waiting" if node.type == "Suspend" else "running"
            return [f"{stage}: waits for an approval ({self.how(node.name)})"] if node.type == "Suspend" else []
        row.finished = node.finished
        if (stage, task) in self.graphs:
            return self._graph_task_ended(row, stage, task, node)
        return self._ended(row, stage, task, int(node.inputs.get("shard") or 0))

    def _ended(self, row: StageRow, stage: str, task: str, shard: int) -> list[str]:
        last_words = self.told(stage, task) if task != "approval" else {}
        if any(word.nodes for word in last_words.values()):
            row.nodes = f"{sum(word.passed for word in last_words.values())}/{sum(word.nodes for word in last_words.values())}"
        if task == "judge" and shard in last_words and last_words[shard] != last_word.RECORDED:
            row.status, row.reason = last_words[shard].status, last_words[shard].reason
            return [f"{stage}: {row.status}: {row.reason} ({row.finished - row.started:.1f} s)"]
        if shard not in last_words:
            return []
        word = last_words[shard]
        before, self.last_words[stage, task, shard] = self.last_words.get((stage, task, shard)), word.text
        # a sentence with which an earlier attempt ended is not repeated
        return [f"{stage}: {task} {word.text if word.text != before else f'{word.status} again, as before'}"]

    def _graph_task_ended(self, row: StageRow, stage: str, task: str, node: RunNodeStatus) -> list[str]:
        """Count a task of a graph, and return a line if it failed, or if a tenth of a large graph has ended since the last line."""
        shard, total = int(node.inputs.get("shard") or 0), self.graphs[stage, task]
        ended = self.built.setdefault((stage, task), {})
        word, tenths = self.word_of(stage, task, shard), len(ended) * _TENTHS // total
        is_passed = node.phase == "Succeeded" and (word is None or word.status == Status.PASS)
        ended[shard] = is_passed
        row.nodes = f"{sum(ended.values())}/{total}"
        name = _graph_name(node)
        if not is_passed:
            text = word.text if word else f"{node.phase}: {node.message}"
            before, self.last_words[stage, task, shard] = self.last_words.get((stage, task, shard)), text
            return [f"{stage}: {name} {text}"] if text != before else []
        if total > _LISTED and len(ended) * _TENTHS // total == tenths:
            return []
        failed = len(ended) - sum(ended.values())
        counted = f"{len(ended)} of {count(total, 'task')}{f', {failed} failed' if failed else ''}"
        return [f"{stage}: {name} {word.text if word else 'pass'} ({counted})"]

    def word_of(self, stage: str, task: str, shard: int) -> Said | None:
        """Return the last word of one shard's record, or None. A graph of thousands of tasks cannot have all read for each end."""
        record = self.store.record(self.run, stage, task, shard)
        return last_word.summary_of(record.verdict) if record is not None else None

    def told(self, stage: str, task: str) -> Mapping[int, Said]:
        """Return the last words of a task's records by shard number."""
        return {record.shard: last_word.summary_of(record.verdict) for record in self.store.records(self.run, stage, task)}

    def of_opening(self, _node: RunNodeStatus) -> Said | None:
        """Return the last word of the task `open`, the only explanation if no stage begins; None if it left no record."""
        return self.told(run_records.STAGE, run_records.OPEN).get(0)


def _graph_name(node: RunNodeStatus) -> str:
    """Return the name of a graph's task without the number of its attempt."""
    return node.name.partition("(")[0]
