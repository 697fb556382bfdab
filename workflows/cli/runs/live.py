"""Live progress of a run, from the engine's news and the store's records: a table in a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from steps.clients.store import Store
from steps.contract import approval, last_word, plain
from steps.contract import run as contract
from steps.contract.last_word import Said
from workflows.engines.local.result import News, NodeNews, RunNews, RunNodeStatus
from workflows.render import names

_OPEN = names.template(contract.STAGE, contract.OPEN)
_STYLES = {"pass": "green", "fail": "red", "inconclusive": "yellow", "running": "cyan", "waiting": "magenta"}


@dataclass
class _Row:
    """State of one stage in the view."""

    status: str = ""
    task: str = ""
    nodes: str = ""
    started: float = 0.0
    finished: float = 0.0
    reason: str = ""


@dataclass
class Progress:
    """The state of the view, updated by each piece of news without any output."""

    tasks: Mapping[str, Iterable[str]]
    """Names of each stage's tasks, the stages in running order."""
    run: str
    store: Store
    how: Callable[[str], str]
    """Function that returns the command which answers the approval of a suspend node."""
    rows: dict[str, _Row] = field(default_factory=dict)
    templates: dict[str, tuple[str, str]] = field(default_factory=dict)
    said: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """Last text that was printed for a task's shard."""

    def __post_init__(self) -> None:
        for stage, named in self.tasks.items():
            self.rows[stage] = _Row()
            self.templates[f"{approval.NODE_PREFIX}{names.dashed(stage)}"] = (stage, "approval")
            for task in (*named, *approval.TASKS):
                self.templates[names.template(stage, task)] = (stage, task)

    def take(self, node: RunNodeStatus) -> list[str]:
        """Take one node's news and return the plain lines for it."""
        if node.template == _OPEN and node.type == "Pod" and node.phase in ("Failed", "Error"):
            word = self.of_opening(node)
            why = f"{node.message}; why: bringup logs {contract.STAGE}.{contract.OPEN} --run {self.run}"
            return [f"{contract.OPEN}: {word.text if word else f'{node.phase}: {why}'}"]
        if node.template not in self.templates or node.type not in ("Pod", "Suspend"):
            return []
        stage, task = self.templates[node.template]
        row = self.rows[stage]
        if task == approval.ANNOUNCE:  # it runs beside the wait, which the row shows
            return self._ended(row, stage, task, 0) if node.finished is not None else []
        if node.type == "Pod":  # the time that a person takes to approve does not count for the stage
            row.started = row.started or node.started
        if node.finished is None:
            row.task = task
            row.status = "waiting" if node.type == "Suspend" else "running"
            return [f"{stage}: waits for an approval ({self.how(node.name)})"] if node.type == "Suspend" else []
        row.finished = node.finished
        return self._ended(row, stage, task, int(node.inputs.get("shard") or 0))

    def _ended(self, row: _Row, stage: str, task: str, shard: int) -> list[str]:
        last_words = self.told(stage, task) if task != "approval" else {}
        if any(word.nodes for word in last_words.values()):
            row.nodes = f"{sum(word.passed for word in last_words.values())}/{sum(word.nodes for word in last_words.values())}"
        if task == "judge" and shard in last_words and last_words[shard] != last_word.RECORDED:
            row.status, row.reason = last_words[shard].status, last_words[shard].reason
            return [f"{stage}: {row.status}: {row.reason} ({row.finished - row.started:.1f} s)"]
        return self._once(stage, task, shard, last_words[shard]) if shard in last_words else []

    def _once(self, stage: str, task: str, shard: int, said: Said) -> list[str]:
        """Return the line for a task's result; if its earlier attempt ended with the same sentence, that is not repeated."""
        before, self.said[stage, task, shard] = self.said.get((stage, task, shard)), said.text
        return [f"{stage}: {task} {said.text if said.text != before else f'{said.status} again, as before'}"]

    def told(self, stage: str, task: str) -> Mapping[int, Said]:
        """Return the last word of each record of a task, by shard."""
        return {record.shard: last_word.of(record.verdict) for record in self.store.records(self.run, stage, task)}

    def of_opening(self, _node: RunNodeStatus) -> Said | None:
        """Return the last word of the task `open`, the only explanation if no stage begins."""
        return self.told(contract.STAGE, contract.OPEN).get(0)

    def table(self, now: float) -> RenderableType:
        """Return the table of all stages."""
        grid = Table("stage", "status", "task", "nodes", "elapsed", box=None, pad_edge=False, header_style="bold")
        for stage, row in self.rows.items():
            end = row.finished if row.status in ("pass", "fail", "inconclusive") else now
            elapsed = f"{max(0.0, end - row.started):.1f} s" if row.started else ""
            grid.add_row(stage, row.status or "·", row.task, row.nodes, elapsed, style=_STYLES.get(row.status, "dim"))
        return grid


class View:
    """The live view of a run, a context manager; give `observe` to the engine. `stopped` is called when the run is ended."""

    def __init__(self, progress: Progress, console: Console, stopped: Callable[[], object] | None = None) -> None:
        self._progress = progress
        self._stopped = stopped
        self._console = console
        self._live = Live(console=console, refresh_per_second=8, get_renderable=self._render) if console.is_terminal else None

    def __enter__(self) -> "View":
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def observe(self, news: News) -> None:
        """Take a piece of the engine's news."""
        if isinstance(news, RunNews) and news.shutdown and self._stopped:
            self._stopped()
        if isinstance(news, NodeNews):
            for line in self._progress.take(news.node):
                # the table has no row for `open`; lines with a command are not folded, so that they can be copied
                if not self._live or news.waits or news.node.template == _OPEN:
                    self._console.print(plain.line(line), markup=False, emoji=False, soft_wrap=news.waits or None)

    def _render(self) -> RenderableType:
        return self._progress.table(time.time())
