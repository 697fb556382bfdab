"""One finished rehearsal, seen through every command that reads a run; and rehearsals that must not begin."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from workflows import examples
from workflows.cli.main import run
from workflows.engines import locks
from workflows.engines.folders import StateFolder

pytestmark = pytest.mark.xdist_group("rehearsed")  # they share one rehearsal

INSIDE = re.compile(r"\b(?:sv[1-3]|gpu0\d\d)\b|10\.10\.|/tmp|/var|/etc|gpu-platform|rack\d|leaf\d|h200-16")
"""Pattern of hosts, addresses, paths and names in the example that a public report must not show."""


def test_a_rehearsal_prints_plain_lines_and_leaves_its_reports(rehearsed: tuple[Any, Any]) -> None:
    machine, done = rehearsed
    assert done.code == 0, done.text
    assert "\x1b" not in done.out
    assert "rke2: pass: 19 of 19 nodes passed all gates" in done.out
    assert "h200-16: pass: all 2 stages passed" in done.out
    assert "rehearsal: hosts, cluster and figures are simulated" in done.out
    report = machine.runs[0] / "report"
    assert str(report / "report.html") in done.out
    assert {path.name for path in report.iterdir()} == {"report.html", "report.json", "junit.xml", "report.txt"}
    assert machine.processes() == []


def test_lines_of_shards_are_about_each_shard_once(rehearsed: tuple[Any, Any]) -> None:
    lines = [line for line in rehearsed[1].out.splitlines() if line.startswith("os_prep: play")]
    assert sorted(lines) == ["os_prep: play pass: 16 of 16 nodes: prepared", "os_prep: play pass: 3 of 3 nodes: prepared"]


def test_status_and_watch_of_a_finished_run(rehearsed: tuple[Any, Any]) -> None:
    machine, _ = rehearsed
    assert "Succeeded" in machine.call("status").out
    status = json.loads(machine.call("status", machine.runs[0].name, "-o", "json").out)
    assert (status["phase"], status["waiting"]) == ("Succeeded", [])
    assert [(row["stage"], row["status"]) for row in status["stages"]] == [("os_prep", "pass"), ("rke2", "pass")]
    assert yaml.safe_load(machine.call("status", "-o", "yaml").out) == status
    watched = machine.call("watch")
    assert watched.code == 0
    assert watched.out.splitlines()[-1] == f"{machine.runs[0].name}: Succeeded"


def test_who_looks_at_a_run_does_not_wait_for_hera(rehearsed: tuple[Any, Any]) -> None:
    code = """
import sys
from workflows.cli.main import run
from workflows.engines import locks
from workflows.engines.folders import StateFolder
for command in ("status", "watch", "logs", "report", "timeline"):
    assert run([command]) == 0
    assert "hera" not in sys.modules, command
"""
    environment = rehearsed[0].environment({})
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_logs_are_found_by_stage_and_task(rehearsed: tuple[Any, Any]) -> None:
    machine, _ = rehearsed
    found = machine.call("logs", "os_prep.judge")
    assert found.code == 0
    assert found.out.startswith("==> ")
    assert "os-prep.judge" in found.out
    missing = machine.call("logs", "slurm.judge")
    assert missing.code == 64
    assert "no log of 'slurm.judge'" in missing.err
    assert re.search(r"^hint: tasks that ran: run\.open, os_prep\.\w+, .*\bos_prep\.judge, .*rke2\.judge\b", missing.err, re.M)
    run = machine.runs[0].name
    assert machine.call("logs", run).err.splitlines()[1] == f"hint: {run} is a run: bringup logs --run {run}"


def test_the_report_in_every_form(rehearsed: tuple[Any, Any], tmp_path: Path) -> None:
    machine, _ = rehearsed
    assert "all 2 stages passed" in machine.call("report").out
    made = json.loads(machine.call("report", "-o", "json").out)
    assert yaml.safe_load(machine.call("report", "-o", "yaml").out)["sentence"] == made["sentence"]
    assert [(one["stage"], one["approver"], one["decision"]) for one in made["approvals"]] == [("rke2", "rehearsal", "pass")]
    assert "rehearsal itself approved" in made["approvals"][0]["reason"]
    assert made["simulated"] is True
    assert machine.call("report", "-o", "html", "--out", tmp_path / "r.html").code == 0
    assert "</html>" in (tmp_path / "r.html").read_text()
    suites = ElementTree.fromstring(machine.call("report", "-o", "junit").out)
    assert {suite.get("name") for suite in suites} == {"os_prep", "rke2"}
    refused = machine.call("report", "-o", "pdf")
    assert refused.code == 64
    assert "no form of a report" in refused.err


@pytest.mark.parametrize("form", ["table", "json", "yaml", "html", "junit"])
def test_the_public_report_has_nothing_of_insiders(rehearsed: tuple[Any, Any], form: str) -> None:
    machine, _ = rehearsed
    done = machine.call("report", "--public", "-o", form)
    assert done.code == 0
    assert "rke2" in done.out
    found = INSIDE.search(done.out)
    assert found is None, done.out[max(0, found.start() - 80) : found.end() + 80]


def test_the_timeline_begins_and_ends_with_the_run(rehearsed: tuple[Any, Any]) -> None:
    machine, _ = rehearsed
    entries = json.loads(machine.call("timeline", "-o", "json").out)
    assert (entries[0]["kind"], entries[-1]["kind"]) == ("run", "run")
    assert entries[-1]["text"].startswith("ended: pass")
    assert any(entry["kind"] == "approval" and entry["text"] == "pass by rehearsal" for entry in entries)
    assert "## Still to write" in machine.call("timeline").out


@pytest.mark.parametrize("name", ["evidence/rke2/judge/0000/01.json", "logs/rke2/judge/0000/01.log", "logs/run/seal/0000/01.log"])
def test_verify_names_the_changed_file(rehearsed: tuple[Any, Any], name: str) -> None:
    machine, _ = rehearsed
    run = machine.runs[0]
    assert machine.call("verify", run).code == 0
    record = run / name
    before = record.read_bytes()
    record.write_bytes(before[:-2] + bytes([before[-2] ^ 1]) + before[-1:])
    changed = machine.call("verify", run)
    record.write_bytes(before)
    assert changed.code == 65
    assert f"{name}: changed since it was sealed" in changed.out
    assert machine.call("verify", run).code == 0


def test_every_step_of_a_run_has_a_stored_log_that_says_something(rehearsed: tuple[Any, Any]) -> None:
    run = rehearsed[0].runs[0]
    for record in (run / "evidence").rglob("*.json"):
        log = run / "logs" / record.relative_to(run / "evidence").with_suffix(".log")
        assert len(log.read_text().splitlines()) >= 3, log
    assert (run / "logs/run/report/0000/01.log").exists()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("resume",), "was a rehearsal; its simulated cluster ended with it"),
        (("cancel",), "no engine drives run"),
        (("approve", "--as", "ada@example.org"), "waits for no approval"),
        (("approve",), "an approval needs a name"),
        (("status", "nowhere"), "no run 'nowhere'; runs here: h200-16-"),
    ],
)
def test_what_a_finished_rehearsal_cannot_do(rehearsed: tuple[Any, Any], command: tuple[str, ...], said: str) -> None:
    done = rehearsed[0].call(*command)
    assert done.code == 64
    assert said in done.err
    assert "hint: " in done.err
    assert "Invalid value" not in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--fault", "gpu_missing"), "disturbs stage gpu_operator; this rehearsal has os_prep, rke2"),
        (("--fault", "disk_full:gpu099"), "the spec has no host gpu099"),
        (("--approve-as", "mallory"), "mallory is not among the approvers"),
        (("--approve-as", "a b"), "cannot be an approver's name"),
        (("--approve-as", "ada@example.org", "--key", "nowhere"), "no key file nowhere"),
    ],
)
def test_a_rehearsal_that_could_not_do_what_is_asked_never_begins(
    arguments: tuple[str, ...],
    said: str,
    tmp_path: Path,
    approved: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BRINGUP_HOME", str(tmp_path / "home"))
    (tmp_path / "small.yaml").write_text(approved())
    assert run(["rehearse", str(tmp_path / "small.yaml"), *arguments]) == 64
    assert said in capsys.readouterr().err
    assert not (tmp_path / "home").exists()


def test_a_kubeconfig_that_is_not_there_is_refused_before_a_run_is_named(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    done = machine.call("rehearse", "small.yaml", "--kubeconfig", "/nowhere")
    assert (done.code, done.out) == (64, "")
    assert done.err.splitlines() == [
        "error: kubeconfig /nowhere: No such file or directory",
        "hint: name the kubeconfig of a running API server with --kubeconfig",
    ]
    assert not machine.home.exists()
    home = machine.call("run", "small.yaml", "--engine", "argo", "--home-kubeconfig", "/nowhere")
    assert (home.code, "--home-kubeconfig" in home.err) == (64, True)


AWAY = """{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
  clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}], users: [{name: u, user: {token: t}}]}"""


@pytest.mark.parametrize(("given", "code"), [((), 64), (("id_ed25519", "known_hosts"), 75)])
def test_what_ci_is_shown_of_a_refusal(machine: Any, given: tuple[str, ...], code: int) -> None:
    """A secret that is missing here is no temporary trouble, though the cluster is away; and no earlier report stays in place."""
    (machine.folder / "own.yaml").write_text(examples.path("single-node").read_text() + "stages: [os_prep]\n")
    (machine.folder / "away").write_text(AWAY)
    (machine.folder / "junit.xml").write_text("<testsuites tests='1'/>")
    for name in given:
        (machine.folder / name).write_text("nobody needs it\n")
    where = ("--engine", "argo", "--home-kubeconfig", "away")
    done = machine.call("run", "own.yaml", *where, "--junit", "junit.xml")
    assert done.code == code, done.text
    (error,) = ElementTree.fromstring((machine.folder / "junit.xml").read_bytes()).iter("error")
    assert error.attrib["message"].startswith("no run has begun: ")
    assert done.err.splitlines()[0].removeprefix("error: ") in error.attrib["message"]


def test_a_fault_is_caught_with_a_sentence_that_says_it_all(machine: Any, small: str) -> None:
    (machine.folder / "small.yaml").write_text(small)
    done = machine.call("rehearse", "small.yaml", "--fault", "disk_full:gpu003,gpu007")
    assert done.code == 65
    head = "h200-16: fail: os_prep: 14 of 16 agents pass, 15 needed"
    line = next(line for line in done.out.splitlines() if line.startswith(head))

    assert "gpu[003,007]: failed, disk_full" in line
    assert "9000 MiB" in line
    assert "; expected " in line
    assert "; next: make space on gpu[003,007]" in line
    made = json.loads(machine.call("report", "-o", "json").out)
    assert {node["name"] for node in made["nodes"] if node["reason"]} == {"gpu003", "gpu007"}
    assert machine.call("watch").code == 65


def test_one_stage_is_rehearsed_with_the_stages_before_it_in_place(machine: Any, approved: Callable[..., str]) -> None:
    (machine.folder / "small.yaml").write_text(approved())
    done = machine.call("rehearse", "small.yaml", "--only", "rke2", "--fault", "coredns_not_ready")
    assert done.code == 65, done.text
    assert done.out.startswith("brought up first, healthy and without output: os_prep\n")
    assert "os_prep: " not in done.out
    assert "CoreDNS" in done.out or "coredns" in done.out
    assert len(machine.runs) == 1
    again = machine.call("resume")
    assert "hint: start it again: bringup rehearse small.yaml --fault coredns_not_ready --only rke2" in again.err


def test_every_missing_secret_is_named_at_once(machine: Any) -> None:
    (machine.folder / "sub").mkdir()
    (machine.folder / "sub/own.yaml").write_text(examples.path("three-hosts").read_text())
    done = machine.call("run", "sub/own.yaml", "--only", "os_prep")
    assert done.code == 64
    assert done.err.startswith("error: 2 secrets are missing: secret known_hosts: ")
    assert "; secret ssh_key: " in done.err
    assert f"hint: relative paths are looked up beside the spec, in {machine.folder / 'sub'}" in done.err
    assert not machine.home.exists()


def test_a_run_whose_cluster_is_busy_leaves_no_secret_and_says_that_it_never_began(machine: Any) -> None:
    (machine.folder / "own.yaml").write_text(examples.path("three-hosts").read_text())
    for name in ("id_ed25519", "known_hosts"):
        (machine.folder / name).write_text("canary-9\n")

    with locks.cluster(StateFolder(machine.home), "three-hosts"):
        done = machine.call("run", "own.yaml", "--junit", "junit.xml")

    assert (done.code, "another run on this machine works on cluster three-hosts" in done.err) == (75, True), done.text
    assert not [path for path in machine.home.rglob("*") if path.is_file() and "canary-9" in path.read_text(errors="replace")]
    (error,) = ElementTree.fromstring((machine.folder / "junit.xml").read_bytes()).iter("error")
    assert error.attrib["message"].startswith("no run has begun: another run on this machine works on cluster three-hosts")
