"""`bringup explain` and `bringup runs`: what a word means, and which runs there are."""

import json
from pathlib import Path
from typing import Any

import pytest

from workflows.stages import FACTORY_STAGES, PIPELINES, UNSIMULATED

REPOSITORY = Path(__file__).parents[3]


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
        ("publish", ("field publish of kind Stack: ", "field publish of kind Image: ")),
        (
            "stack_publish",
            (
                "stage stack_publish of pipeline stack: copy the tested tree",
                "gate stack_publish/version: ",
                "no fault is simulated: faults of stack builds are tested on real builds (tests/stack/",
            ),
        ),
        (
            "factory_registry",
            ("stage factory_registry of pipeline factory: ", "a rehearsal can play the faults registry_down"),
        ),
        ("sharing", ("stage sharing of pipeline bring-up: ", "field sharing of kind Cluster: ")),
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


def test_explain_proposes_fields_of_all_kinds_of_specs(machine: Any) -> None:
    assert "did you mean easybuild.release" in machine.call("explain", "easybuild.relase").err


def test_stages_lists_the_stages_of_all_pipelines_with_files_that_exist(machine: Any) -> None:
    done = machine.call("stages", "-o", "json")
    assert done.code == 0, done.text
    rows = json.loads(done.out)
    pipelines = {pipeline: [row["stage"] for row in rows if row["pipeline"] == pipeline] for pipeline in PIPELINES}
    assert pipelines == {pipeline: list(names) for pipeline, names in PIPELINES.items()}
    assert [file for row in rows for file in row["files"] if not (REPOSITORY / file).exists()] == []


def test_faults_lists_those_of_factories_and_names_the_tests_of_stacks_and_images(machine: Any) -> None:
    done = machine.call("faults")
    assert done.code == 0, done.text
    assert all(f" {stage}/" in done.out for stage in FACTORY_STAGES)
    folders = [word.strip("(),") for line in UNSIMULATED.values() for word in line.split() if word.startswith("(tests/")]
    told_by = "".join(machine.call("explain", PIPELINES[pipeline][0]).out for pipeline in UNSIMULATED)
    assert all(folder in told_by and list(REPOSITORY.glob(folder)) for folder in folders)
    assert "bringup explain STAGE" in machine.call("faults", "--help").out


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
