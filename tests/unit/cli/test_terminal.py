"""A rehearsal in a terminal of 60 columns: the table of stages, a clean end, colours only where they are wanted."""

import re
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
    assert "h200-16: pass: all 1 stages passed" in text.replace("\r\n", "\n")
