"""The list of commands, shell completion, and the schema that `init` writes for editors."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from workflows.cli.command_sections import SECTIONS
from workflows.cli.main import application
from workflows.rehearsal.faults import fault_registry
from workflows.softwarestack import stack_faults


def test_every_command_stands_in_one_section() -> None:
    import typer

    listed = [name for names in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(typer.main.get_command(application()).commands)  # type: ignore[attr-defined]  # a group


def test_help_shows_whole_sentences_by_section_in_eighty_columns(machine: Any) -> None:
    shown = machine.call("--help", COLUMNS="80").out
    assert [line for line in shown.splitlines() if re.fullmatch(r"[A-Z][a-z ]+:", line)] == [
        "Options:",
        *(f"{name}:" for name in SECTIONS),
    ]
    assert "..." not in shown.partition("Cluster:")[2]
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("typed", "proposed"),
    [
        (("rehearse", "--fault", "disk_"), "disk_full"),
        (("run", "--only", "gpu"), "gpu_operator"),
        (("rehearse", "three-"), "three-hosts"),
        (("explain", "P02"), "P02"),
        (("explain", "rke2/no"), "rke2/nodes"),
        (("status", "one-"), "one-run"),
        (("rehearse", "--operation", "up"), "upgrade"),
        (("image", "build", "comp"), "compute"),
    ],
)
def test_the_shell_completes(machine: Any, typed: tuple[str, ...], proposed: str) -> None:
    (machine.home / "engine" / "one-run").mkdir(parents=True)
    words = " ".join(("bringup", *typed))
    done = machine.call(_BRINGUP_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(len(typed)))
    assert proposed in done.out.split(), done.text


def test_a_table_in_a_pipe_has_one_line_a_record_and_no_blanks_at_its_end(machine: Any) -> None:
    lines = machine.call("faults").out.splitlines()
    assert len(lines) == len(fault_registry.faults()) + len(stack_faults.FAULTS) + 1
    assert [line for line in lines if line != line.rstrip()] == []
    assert machine.call("faults", COLUMNS="wide").out.splitlines() == lines


def test_no_runs_is_said_and_a_home_that_is_a_file_is_refused(machine: Any) -> None:
    assert f"there are no runs in {machine.home}" in machine.call("runs").err
    (machine.folder / "file").write_text("")
    done = machine.call("runs", BRINGUP_HOME=str(machine.folder / "file"))
    assert (done.code, "which is no folder" in done.err) == (64, True), done.text


@pytest.mark.parametrize(("options", "name"), [((), "cluster"), (("--image",), "image")])
def test_init_writes_the_schema_that_editors_find(machine: Any, options: tuple[str, ...], name: str) -> None:
    folder: Path = machine.folder
    done = machine.call("init", *options)
    assert f"wrote {name}.yaml and {name}.schema.json" in done.out, done.text
    text = (folder / f"{name}.yaml").read_text()
    assert text.startswith(f"# yaml-language-server: $schema={name}.schema.json\n")
    Draft202012Validator(json.loads((folder / f"{name}.schema.json").read_text())).validate(yaml.safe_load(text))

    (folder / f"{name}.schema.json").write_text("{}")
    refused = machine.call("init", *options, "--force")
    assert (refused.code, "is no schema of bringup's" in refused.err) == (64, True), refused.text
