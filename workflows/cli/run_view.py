"""The live view of a run: a table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Sequence
from typing import Self

from rich.console import Console, RenderableType
from rich.live import Live
from rich.table import Table

from steps.contract import plain_text
from workflows.app.runs.run_progress import OPEN, Progress
from workflows.cli.terminal import STATE_STYLES
from workflows.engines.local.result import News, NodeNews, RunNews


class _Drawn:
    """Base context manager: on a terminal, a block of text is redrawn eight times a second while the context is open."""

    def __init__(self, console: Console, render: Callable[[], RenderableType] | None = None) -> None:
        self._live = Live(console=console, refresh_per_second=8, get_renderable=render) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()


class View(_Drawn):
    """The live view of a run, shown while its context is open; the engine calls `observe`.

    `stopped` is called at the run's shutdown.
    """

    def __init__(self, progress: Progress, console: Console, stopped: Callable[[], object] | None = None) -> None:
        self._progress = progress
        self._stopped = stopped
        self._console = console
        super().__init__(console, self._render)

    def say(self, sentence: str) -> None:
        """Print a sentence, above the table while the table is shown."""
        self._console.print(sentence)

    def observe(self, news: News) -> None:
        """Show a piece of the engine's news: update the table, or print lines."""
        if isinstance(news, RunNews) and news.shutdown and self._stopped:
            self._stopped()
        if isinstance(news, NodeNews):
            for line in self._progress.take(news.node):
                # the table has no row for `open`; lines with a command are not folded, so that they can be copied
                if not self._live or news.waits or news.node.template == OPEN:
                    self._console.print(plain_text.line(line), markup=False, emoji=False, soft_wrap=news.waits or None)

    def _render(self) -> RenderableType:
        now = time.time()
        grid = Table("stage", "status", "task", "nodes", "elapsed", box=None, pad_edge=False, header_style="bold")
        for stage, row in self._progress.rows.items():
            end = row.finished if row.status in ("pass", "fail", "inconclusive") else now
            elapsed = f"{max(0.0, end - row.started):.1f} s" if row.started else ""
            grid.add_row(stage, row.status or "·", row.task, row.nodes, elapsed, style=STATE_STYLES.get(row.status, "dim"))
        return grid


class StageTable(_Drawn):
    """A table of stages, redrawn by each `show` while its context is open; without a terminal nothing is drawn."""

    def show(self, rows: Sequence[tuple[str, str, str]]) -> None:
        """Draw the table with these rows of (stage, status, reason)."""
        if not self._live:
            return
        grid = Table("stage", "status", "reason", box=None, pad_edge=False, header_style="bold")
        for row in rows:
            grid.add_row(*map(plain_text.line, row), style=STATE_STYLES.get(row[1], "dim"))
        self._live.update(grid)
