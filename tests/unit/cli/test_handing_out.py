"""Evidence handed out to others holds no secrets and verifies, and a run records the Git commit of its spec."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workflows.app.runs import seal_traces
from workflows.app.specs import revisions
from workflows.engines.folders import RunFolder, StateFolder


def test_the_evidence_that_is_handed_out_has_no_secrets_and_verifies(rehearsed: Any, tmp_path: Path) -> None:
    machine, done = rehearsed
    (run,) = machine.runs
    assert (run / "secrets").is_dir()
    assert f"{run / 'secrets'} opens the cluster: keep it here" in done.out
    verified = machine.call("verify", run)
    assert verified.code == 0
    for said in (
        "unchanged since it was sealed",
        "the seal is signed by this machine's key, ED25519 SHA256:",
        "not covered by the seal: ",
        "secrets/kubeconfig",
    ):
        assert said in verified.out
    copied = machine.call("report", "--out", f"{tmp_path}/")
    assert copied.code == 0, copied.text
    handed = tmp_path / run.name
    assert not (handed / "secrets").exists()
    alone = machine.call("verify", handed)
    assert alone.code == 0
    assert "not covered" not in alone.out
    public = machine.home / "keys/seal.pub"
    assert (public.parent.stat().st_mode & 0o777, public.with_suffix("").stat().st_mode & 0o777) == (0o700, 0o600)
    assert machine.call("verify", handed, "--signer", f"bringup={public}").code == 0
    secrets = [public.with_suffix("").read_bytes(), *(path.read_bytes() for path in (run / "secrets").iterdir())]
    for path in (path for path in handed.rglob("*") if path.is_file()):
        assert not any(secret in path.read_bytes() for secret in secrets), path


@pytest.mark.parametrize("command", ["runs", "status", "report"])
def test_commands_that_read_a_run_do_not_import_the_linter(command: str, rehearsed: Any) -> None:
    machine, _ = rehearsed
    code = f"""
import sys
from workflows.cli.main import run
code = run([{command!r}])
checks = sorted(name for name in sys.modules if name.startswith("workflows.render.grammar.") and "check" in name)
print(code, *checks, file=sys.stderr)
"""
    home = {"BRINGUP_HOME": str(machine.home)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=home)
    assert done.stderr.splitlines()[-1] == "0"


@pytest.mark.parametrize(
    ("taken", "sentence"),
    [
        (("seal.json", "seal.json.sig"), "seal.json: missing, although the engine's journal says that the run was sealed"),
        (("seal.json.sig",), "seal.json.sig: missing, although the engine's log says that the seal was signed"),
    ],
)
def test_a_seal_that_was_taken_away_does_not_make_a_run_look_unsealed(
    taken: tuple[str, ...], sentence: str, rehearsed: Any, tmp_path: Path
) -> None:
    machine = copied_machine(rehearsed, tmp_path)
    for name in taken:
        (machine.runs[0] / name).unlink()
    for command in ("verify", "report", "status"):
        done = machine.call(command)
        assert sentence in done.text, command
        assert done.code == (0 if command == "status" else 65), done.text
    copied = machine.call("report", "--out", f"{tmp_path}/copy/")
    assert (copied.code, "so nothing is handed out: " + sentence in copied.text) == (64, True), copied.text
    assert not (tmp_path / "copy").exists()


def test_runs_that_are_compared_are_checked_against_their_seals(rehearsed: Any, tmp_path: Path) -> None:
    machine = copied_machine(rehearsed, tmp_path)
    run = machine.runs[0]
    assert machine.call("diff-runs", run.name, run.name).code == 0
    record = next((run / "evidence").rglob("*.json"))
    record.write_bytes(record.read_bytes() + b"\n")
    done = machine.call("diff-runs", run.name, run.name)
    sentence = f"{run.name}: the run's files are not what was sealed ({record.relative_to(run)}: changed since it was sealed)"
    assert (done.code, sentence in done.out) == (65, True), done.text


def test_a_run_says_that_its_seal_could_not_be_signed(tmp_path: Path) -> None:
    folder = RunFolder(StateFolder(tmp_path), "r1")
    assert seal_traces.unsigned(folder) == []  # nothing is sealed yet
    folder.stored.mkdir(parents=True)
    (folder.stored / "seal.json").write_text("{}")
    (line,) = seal_traces.unsigned(folder)
    assert "this machine made no key: ssh-keygen is missing" in line
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/seal").touch()  # as a full disk leaves it
    (line,) = seal_traces.unsigned(folder)
    assert f"{tmp_path}/keys/seal cannot sign" in line
    (folder.stored / "seal.json.sig").write_text("signature")
    assert seal_traces.unsigned(folder) == []


def test_a_file_that_is_no_record_is_named_as_a_difference_from_the_seal(rehearsed: Any, tmp_path: Path) -> None:
    machine = copied_machine(rehearsed, tmp_path)
    (machine.runs[0] / "evidence/added.json").write_text("no record")
    done = machine.call("report")
    assert (done.code, "evidence/added.json: not in the seal" in done.text) == (65, True), done.text


def test_a_folder_that_somebody_else_made_is_not_the_newest_run(rehearsed: Any, tmp_path: Path) -> None:
    machine = copied_machine(rehearsed, tmp_path)
    (machine.home / "engine/zz").mkdir()
    done = machine.call("status")
    assert (done.code, machine.runs[0].name in done.out) == (0, True), done.text


def copied_machine(rehearsed: Any, folder: Path) -> Any:
    """Return a machine with a copy of the rehearsed run, which a test may change."""
    machine, _ = rehearsed
    shutil.copytree(machine.home, folder / "home", symlinks=True)
    return dataclasses.replace(machine, folder=folder, started=[])


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=ada", "-c", "user.email=ada@example.org")
    return subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with a committed spec, in a folder below its top."""
    (tmp_path / "tree/sites").mkdir(parents=True)
    (tmp_path / "tree/sites/lab.yaml").write_text("name: lab\n")
    git(tmp_path / "tree", "init", "-q")
    git(tmp_path / "tree", "add", ".")
    git(tmp_path / "tree", "commit", "-q", "-m", "first")
    return tmp_path / "tree"


def test_the_commit_of_a_spec_and_whether_it_was_changed_since(tree: Path, tmp_path: Path) -> None:
    spec = tree / "sites/lab.yaml"
    clean = revisions.of(spec)
    assert clean is not None
    assert (clean.commit, clean.path, clean.dirty) == (git(tree, "rev-parse", "HEAD"), "sites/lab.yaml", False)
    spec.write_text("name: other\n")
    (tree / "sites/new.yaml").write_text("name: new\n")
    for changed in (revisions.of(spec), revisions.of(tree / "sites/new.yaml")):
        assert changed is not None
        assert changed.dirty
    (tmp_path / "outside.yaml").write_text("name: lab\n")
    assert revisions.of(tmp_path / "outside.yaml") is None


def test_the_repository_of_a_hook_does_not_answer_for_the_spec(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    git(other, "commit", "-q", "--allow-empty", "-m", "other")
    own = git(tree, "rev-parse", "HEAD")
    for name, value in {"GIT_DIR": other / ".git", "GIT_WORK_TREE": other, "GIT_INDEX_FILE": other / ".git/index"}.items():
        monkeypatch.setenv(name, str(value))
    spec_source = revisions.of(tree / "sites/lab.yaml")
    assert spec_source is not None
    assert (spec_source.commit, spec_source.path, spec_source.dirty) == (own, "sites/lab.yaml", False)


def test_a_run_records_it_outside_of_its_plan(machine: Any, small: str, tree: Path) -> None:
    spec = tree / "sites/lab.yaml"
    spec.write_text(small)
    done = machine.call("rehearse", spec, "--until", "os_prep")
    assert done.code == 0, done.text
    commit = git(tree, "rev-parse", "HEAD")
    assert f"spec Git {commit}, sites/lab.yaml with changes that are not committed" in done.out
    (run,) = machine.runs
    opened = json.loads((run / "evidence/run/open/0000/01.json").read_text())
    assert opened["observation"]["source"]["commit"] == commit
    assert commit not in (run / "plan.json").read_text()
    assert machine.call("verify", run).code == 0


def test_a_repository_cannot_name_programs_that_run_when_its_state_is_read(tree: Path) -> None:
    ran = tree.parent / "ran"
    program = tree.parent / "program"
    program.write_text(f"#!/bin/sh\ntouch {ran}\ncat\n")
    program.chmod(0o755)
    (tree / ".gitattributes").write_text("* filter=evil diff=evil\n")
    for name in ("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "core.fsmonitor"):
        git(tree, "config", name, str(program))
    (tree / ".git/hooks").mkdir(exist_ok=True)
    for hook in ("post-index-change", "fsmonitor-watchman"):
        (tree / ".git/hooks" / hook).symlink_to(program)
    spec = tree / "sites/lab.yaml"
    os.utime(spec, (1, 1))  # so that git would read the file again
    source = revisions.of(spec)
    assert source is not None
    assert not source.dirty
    assert not ran.exists()
