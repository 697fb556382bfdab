"""Home folders of runs: an unusable one ends a command with a one-sentence error, and two runs in one home do not interfere."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit import small_image
from tests.unit.cli.conftest import COMMAND


def one_sentence(done: Any) -> str:
    """The error, which must be one line (and perhaps a hint), and no traceback."""
    lines = done.err.strip().splitlines()
    assert len([line for line in lines if line.startswith("error: ")]) == 1, done.err
    assert all(line.startswith(("error: ", "hint: ")) for line in lines), done.err
    assert "bug:" not in done.err
    return str(lines[0])


def test_a_home_that_cannot_be_made(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    (machine.folder / "file").write_text("")
    home = str(machine.folder / "file" / "home")
    done = machine.call("rehearse", "small.yaml", BRINGUP_HOME=home)
    assert done.code == 64
    sentence = one_sentence(done)
    assert home in sentence
    assert "hint: runs lie in BRINGUP_HOME" in done.err
    assert "Not a directory" in sentence


def test_a_disk_that_is_full(machine: Any, small: str) -> None:
    """The limit on a file's size stands in for a full disk: it needs no root, and a write fails in the middle as well."""
    (machine.folder / "small.yaml").write_text(small)
    done = machine.call("rehearse", "small.yaml", ulimit="-f 20")
    assert done.code == 75
    assert str(machine.home) in one_sentence(done)
    assert machine.processes() == []


def test_output_that_goes_to_a_full_disk(machine: Any) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([COMMAND, "faults"], stdout=full, stderr=subprocess.PIPE, text=True, env=machine.environment({}))
    assert done.returncode == 75
    assert "make room where this output goes" in done.stderr


@pytest.mark.parametrize("given", [None, ""])
def test_no_home_at_all(machine: Any, given: str | None) -> None:
    nothing: dict[str, Any] = {"BRINGUP_HOME": given, "XDG_STATE_HOME": given, "HOME": given}
    done = machine.call("status", **nothing)
    assert done.code == 64
    assert "neither BRINGUP_HOME nor HOME is set" in one_sentence(done)


@pytest.mark.parametrize("command", ["plan", "render"])
def test_an_image_is_planned_and_rendered_without_a_home(machine: Any, command: str) -> None:
    small_image.spec(machine.folder)
    nothing: dict[str, Any] = {"BRINGUP_HOME": None, "XDG_STATE_HOME": None, "HOME": None}
    done = machine.call(command, "image.yaml", **nothing)
    assert done.code == 0, done.text
    assert done.out == machine.call(command, "image.yaml").out, "the same as with one"


def test_a_home_without_runs(machine: Any) -> None:
    done = machine.call("status")
    assert done.code == 64
    assert one_sentence(done) == f"error: there are no runs in {machine.home}"
    assert not Path(machine.home).exists()


def test_two_rehearsals_at_once_in_one_home(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    both = [machine.start("rehearse", "small.yaml", "--seed", str(seed)) for seed in (1, 2)]
    for one in both:
        done = one.end()
        assert done.code == 0, done.text
    assert len(machine.runs) == 2
    for run in machine.runs:
        assert machine.call("verify", run).code == 0
        assert machine.call("verify", Path(run).name).code == 0, "by its name, as in all other commands"
    assert "unchanged since it was sealed" in machine.call("verify").out, "the newest"
    assert machine.processes() == []
