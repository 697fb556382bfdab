"""Printed text is the text that was read: no markup, no emoji codes, no control characters, no line breaks of its own."""

import io
import json

import pytest
import yaml
from rich.console import Console

from steps.clients.store import Store
from workflows.app.runs.run_progress import Progress
from workflows.cli import output
from workflows.cli.run_view import View
from workflows.engines.local.result import NodeNews, RunNodeStatus

MARKUP = "no [/dev/sda1] of [redacted], [bold]:x:[/bold]"
FORGED = "n1 said \x1b[2J\nrke2: pass: all\x9b"
SHOWN = "n1 said \ufffd[2J rke2: pass: all\ufffd"


@pytest.mark.parametrize("columns", ["200", "30"])
def test_cells_are_text(columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    output.table(("stage", "reason"), [("os_prep", MARKUP), ("rke2", FORGED)], title="[/b] of [redacted]")
    printed = capsys.readouterr().out
    words = printed.split()
    for text in (MARKUP, SHOWN, "[/b] of [redacted]"):
        assert " ".join(text.split()) in " ".join(words)
    assert "\x1b" not in printed
    assert not any(line.startswith("rke2: pass") for line in printed.splitlines())


@pytest.mark.parametrize("columns", range(20, 120, 5))
def test_no_word_of_a_table_is_torn_whatever_its_width(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    head = ("host", "address", "type", "fingerprint", "state", "")
    rows = [
        ("gpu[0001-0003]", "3 addresses", "ssh-ed25519", "3 fingerprints", "same", ""),
        ("gpu[0004-0005]", "2 addresses", "-", "-", "no answer", "no host key came from port 22"),
    ]
    output.table(head, rows)
    printed = capsys.readouterr().out.split()
    assert {word for row in rows for cell in row for word in cell.split()} <= set(printed)
    assert "fingerprint" in printed


def test_an_empty_cell_of_a_narrow_table_keeps_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    output.table(("version", "signature", ""), [("0001-aaaaaaaaaaaa", "", "")])
    assert capsys.readouterr().out.splitlines() == ["0001-aaaaaaaaaaaa", "  signature"]


def test_lines_keep_their_ends_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    output.lines([f"{MARKUP}\n\tindented", "\x1b[2J"])
    assert capsys.readouterr().out == f"{MARKUP}\n\tindented\n\ufffd[2J\n"


def test_notes_and_hints_are_one_line_each_and_errors_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.note(f"{MARKUP} {FORGED}")
    output.error(f"{MARKUP}\n  at \x1b[2J", FORGED)
    printed = capsys.readouterr().err
    assert printed == f"note: {MARKUP} {SHOWN}\nerror: {MARKUP}\n  at \ufffd[2J\nhint: {SHOWN}\n"


def test_data_for_scripts_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    value = {"reason": f"{FORGED} {MARKUP} é"}
    output.data(value, output.Format.JSON)
    printed = capsys.readouterr().out
    assert json.loads(printed) == value
    assert "\x9b" not in printed
    output.data(value, output.Format.YAML)
    assert yaml.safe_load(capsys.readouterr().out) == value


class Telling(Progress):
    """Says of every node what is told of it here."""

    def take(self, node: RunNodeStatus) -> list[str]:
        return [f"rke2: play Failed: {node.message}"]


def test_a_line_of_the_view_stays_one_line(tmp_path_factory: pytest.TempPathFactory) -> None:
    out = io.StringIO()
    progress = Telling({"rke2": ["play"]}, "r", Store(tmp_path_factory.mktemp("store")), str)
    node = RunNodeStatus("n", "play", "Pod", "Failed", f"{FORGED} {MARKUP}", "rke2-play", "", {}, {}, 0, 10.0, 12.0, [])
    View(progress, Console(file=out, width=200)).observe(NodeNews(node, "Running"))
    assert out.getvalue() == f"rke2: play Failed: {SHOWN} {MARKUP}\n"
