"""`bringup explain` and `bringup runs`: what a word means, and which runs there are."""

import json
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("word", "lines"),
    [
        ("P02", ("rule P02 (warning): ", "source: https://", "checked again in the running cluster by gate ")),
        ("p02", ("rule P02 (warning): ",)),
        (
            "nccl_socket_fallback",
            ("fault nccl_socket_fallback: ", "caught by gate validation/functional: ", "try it: bringup rehearse "),
        ),
        ("rke2/nodes", ("gate rke2/nodes: ", "code: steps/stages/rke2/gate.py, cases: tests/gates/rke2/", "catches the faults ")),
        ("accelerator.driver", ("field accelerator.driver of kind Cluster: ", "type: host · operator", "default: operator")),
        ("publish", ("field publish of kind Image: ",)),
    ],
)
def test_explain_prints_the_reference_entry(machine: Any, word: str, lines: tuple[str, ...]) -> None:
    done = machine.call("explain", word)
    assert done.code == 0, done.text
    assert all(any(line.startswith(start) for line in done.out.splitlines()) for start in lines), done.out


def test_explain_proposes_words_that_it_knows(machine: Any) -> None:
    done = machine.call("explain", "acelerator.drivr")
    assert done.code == 64
    assert "nothing is known about 'acelerator.drivr': did you mean accelerator.driver or " in done.err


def test_runs_lists_nothing_where_there_are_no_runs(machine: Any) -> None:
    done = machine.call("runs", "-o", "json")
    assert done.code == 0, done.text
    assert json.loads(done.out) == []


def test_runs_lists_a_run_with_its_state(machine: Any) -> None:
    ended = machine.call("rehearse", "single-node", "--only", "os_prep")
    assert ended.code == 0, ended.text
    (run,) = json.loads(machine.call("runs", "-o", "json").out)
    assert run["engine"] == "local"
    assert run["state"] == "Succeeded"
    assert run["run"] in machine.call("runs").out
