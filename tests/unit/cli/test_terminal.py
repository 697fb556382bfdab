"""A rehearsal in a terminal of 60 columns: the table of stages, a clean end, colours only where they are wanted."""

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.unit.cli.pseudo_terminal import in_a_terminal

COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-7]m")
CURSOR_ON = "\x1b[?25h"


@pytest.mark.parametrize("colour", [True, False])
def test_a_rehearsal_in_a_narrow_terminal(machine: Any, small: str, command: str, colour: bool) -> None:
    spec = machine.folder / "small.yaml"
    spec.write_text(small)
    environment = machine.environment({"TERM": "xterm-256color", "NO_COLOR": None if colour else "1"})
    code, written = in_a_terminal(environment, [command, "rehearse", str(spec), "--until", "os_prep"], 60)
    assert code == 0, written
    assert bool(COLOUR.search(written)) == colour
    assert written.rfind(CURSOR_ON) > written.rfind("\x1b[?25l")
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert re.search(r"stage +status +task +nodes +elapsed", text)
    assert re.search(r"os_prep +pass +judge +19/19 +\d+\.\d s", text)
    assert "h200-16: pass: its one stage passed" in text.replace("\r\n", "\n")


@pytest.mark.parametrize("printed", ["output.lines(['n1 \u2026 n9'])", "output.console().print('n1 \u2026 n9')"])
def test_a_character_that_the_output_cannot_take_ends_no_command(printed: str) -> None:
    program = f"from workflows.cli import output, streams; streams.begin(); {printed}"
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.rstrip(), done.stderr) == (0, rb"n1 \u2026 n9", b"")


def test_what_people_read_is_folded_between_words_with_severities_in_colour(machine: Any, command: str) -> None:
    environment = machine.environment({"TERM": "xterm-256color", "NO_COLOR": None})
    code, written = in_a_terminal(environment, [command, "validate", "h200-16"], 50)
    assert code == 0, written
    assert "\x1b[33mwarning\x1b[0m P02" in written
    rows = re.sub(r"\x1b\[[0-9;]*m", "", written).splitlines()
    assert [row for row in rows if len(row) > 50 and " " in row.strip()] == [], "longer than the terminal is only a URL"
    assert "  fix    use SLES, or go on: the gates of stage" in rows
