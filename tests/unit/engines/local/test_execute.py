"""`execute_manifest`: exit codes, sentences, the record, templates in the same file, an operator's script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from workflows.engines.local.manifest_execution import execute_manifest

HEAD = "apiVersion: argoproj.io/v1alpha1\nkind: Workflow\nmetadata: {generateName: wf-}\n"
ONE = HEAD + "spec: {entrypoint: t, templates: [{name: t, container: {image: busybox, command: [sh, -c], args: ['%s']}}]}\n"
GATE = "metadata: {name: base}\nspec: {templates: [{name: t, suspend: {}}]}\n"
TEMPLATE = "apiVersion: argoproj.io/v1alpha1\nkind: WorkflowTemplate\n" + GATE
USE = HEAD + "spec: {entrypoint: m, templates: [{name: m, dag: {tasks: [{name: gate, templateRef: {name: base, template: t}}]}}]}\n"
BOMB = "l0: &l0 [x, x]\n" + "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 10))

MADE = "/tmp/made-by-a-container"  # in a folder of its own: never in that of this machine


def execute(tmp_path: Path, text: str, actions: str | None = None) -> tuple[int, str]:
    (tmp_path / "workflow.yaml").write_text(text)
    if actions is not None:
        (tmp_path / "actions.yaml").write_text(actions)
    said: list[str] = []
    script = tmp_path / "actions.yaml" if actions is not None else None
    code = execute_manifest(tmp_path / "workflow.yaml", tmp_path / "record.json", script, say=said.append)
    return code, "".join(said)


@pytest.mark.parametrize(
    ("script", "code", "phase"),
    [
        ("exit 0", 0, "Succeeded"),
        ("exit 3", 65, "Failed"),
        (f"echo x > {MADE}; cat {MADE}", 0, "Succeeded"),
    ],
)
def test_the_phase_gives_the_exit_code(tmp_path: Path, script: str, code: int, phase: str) -> None:
    assert execute(tmp_path, ONE % script) == (code, "")
    assert json.loads((tmp_path / "record.json").read_text())["phase"] == phase
    assert not Path(MADE).exists()


def test_an_output_that_is_not_written_is_a_defect_of_the_workflow(tmp_path: Path) -> None:
    text = ONE.replace("}]}\n", ", outputs: {parameters: [{name: o, valueFrom: {path: /tmp/o}}]}}]}\n")
    assert execute(tmp_path, text % "exit 0") == (1, "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (ONE.replace("container", "contaner") % "x", "spec.templates[0].contaner: is an unknown field (did you mean 'container'?)"),
        ("[1, 2]", "holds 0 objects of kind Workflow"),
        (ONE % "x" + "---\n" + ONE % "y", "holds 2 objects of kind Workflow"),
        ("a: [", "cannot be read"),
        ("a: !!python/object:os.system x", "cannot be read"),
        ("[" * 5000 + "]" * 5000, "nested deeper than 100 levels"),
        ("a: &a [*a]", "holds more than 200000 values"),
        (BOMB + HEAD + "spec: *l9\n", "holds more than 200000 values"),
        ("a: " + "x" * (5 << 20), "is larger than 4 MiB"),
        (HEAD + f"spec: {{parallelism: {'9' * 6000}}}\n", "spec.parallelism: is not a whole number of 0 or more: inf"),
        (ONE % "x" + "---\nkind: WorkflowTemplate\nmetadata: [1]\nspec: 3\n", "template 1:kind: is not a Workflow"),
    ],
)
def test_outside_of_the_grammar_is_64_with_sentences(tmp_path: Path, text: str, sentence: str) -> None:
    code, said = execute(tmp_path, text)
    assert code == 64
    assert sentence in said
    assert not (tmp_path / "record.json").exists()


def test_templates_in_the_same_file_and_an_operator(tmp_path: Path) -> None:
    actions = "[{when: {node: gate, phase: Running}, wait: 0, do: stop, node: gate, message: refused}]"
    assert execute(tmp_path, TEMPLATE + "---\n" + USE, actions) == (65, "")
    found = json.loads((tmp_path / "record.json").read_text())
    assert found["actions"] == [{"do": "stop", "accepted": True, "error": ""}]
    assert [node["message"] for node in found["nodes"] if node["name"] == "gate"] == ["refused"]


@pytest.mark.parametrize("actions", ["7", "[{}]", "[{do: resume, wait: soon}]", "a: ["])
def test_a_script_that_is_none(tmp_path: Path, actions: str) -> None:
    code, said = execute(tmp_path, TEMPLATE + "---\n" + USE, actions)
    assert code == 64
    assert "actions.yaml" in said


@pytest.mark.parametrize(
    ("do", "accepted", "error"),
    [
        ("do: resume", True, ""),
        ("do: stop", False, "cannot shutdown a completed workflow"),
        ("do: terminate", False, "cannot shutdown a completed workflow"),
        ("do: suspend", False, "cannot suspend completed workflows"),
        ("do: resume, node: a", False, "no suspend nodes matching"),
        ("do: set, node: a, parameters: {x: y}", False, "no suspend nodes matching"),
    ],
)
def test_an_action_on_a_run_that_has_ended_is_answered_as_argo_does(tmp_path: Path, do: str, accepted: bool, error: str) -> None:
    text = HEAD.replace("generateName: wf-", "name: wf") + ONE.removeprefix(HEAD) % "exit 0"
    assert execute(tmp_path, text, f"[{{when: {{node: wf, phase: Succeeded}}, wait: 5, {do}}}]") == (0, "")
    (action,) = json.loads((tmp_path / "record.json").read_text())["actions"]
    assert action["accepted"] is accepted
    assert error in action["error"]
