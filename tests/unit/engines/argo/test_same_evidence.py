"""One spec on both engines, by the command line: `bringup diff-runs` finds evidence that is equal except for times and ids."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit import warm_commands
from tests.unit.engines.argo.lab import Lab, lab, until
from tests.unit.warm_commands import COMMAND
from workflows import examples
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.simulated_cluster import simulated_cluster, write_fleet
from workflows.spec import load

ADA = "ada@example.org"


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Desk"]:
    """A person's machine, a home cluster with Argo's full CRDs, and simulated hosts that both engines prepare."""
    folder = tmp_path_factory.mktemp("desk")
    spec = folder / "small.yaml"
    spec.write_text(
        examples.path("single-node").read_text()
        + f"stages: [os_prep, rke2]\napprovals:\n  - before: rke2\n    approvers: [{ADA}]\n"
        + f"    announce: {{command: [tee, -a, {folder}/announced]}}\n"
    )
    for command in (
        ["init", "-q"],
        ["add", "small.yaml"],
        ["-c", "user.name=ada", "-c", "user.email=ada", "commit", "-qm", "first"],
    ):
        subprocess.run(["git", "-C", str(folder), *command], check=True)
    for name in ("id_ed25519", "known_hosts"):
        (folder / name).write_text(f"the content of {name} that nobody needs\n")
    made = lab(folder)
    made.prepare()
    fleet = write_fleet(folder, compile_plan(load(spec)))
    try:
        with simulated_cluster(folder / "cluster", fleet) as simulated:
            made.stand_in(environment=simulated.environment)
            yield Desk(folder, made)
            made.end_runs()
    finally:
        made.close()


class Desk:
    def __init__(self, folder: Path, home: Lab) -> None:
        self.folder, self.home = folder, home

    def environment(self, home: str) -> dict[str, str]:
        return {**os.environ, "BRINGUP_HOME": str(self.folder / home), "KUBECONFIG": self.home.where.kubeconfig}

    def said(self) -> str:
        """Return the output of the started command so far."""
        return (self.folder / "said").read_text()

    def call(self, *words: str, home: str = "home") -> subprocess.CompletedProcess[str]:
        return warm_commands.run(words, self.environment(home), self.folder)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.folder / "said").open("w") as out:
            return subprocess.Popen([str(COMMAND), *words], cwd=self.folder, env=self.environment("home"), stdout=out, stderr=out)


def test_by_hand_on_argo_and_rehearsed_here(desk: Desk) -> None:
    where = ("--namespace", desk.home.where.namespace)
    argo = desk.start("run", "small.yaml", "--engine", "argo", *where, "--wait", "--junit", "junit.xml")
    until(lambda: "waits for an approval" in desk.said() or argo.poll() is not None, "the approval", 90)
    found = re.search(r"run (bringup-single-node-[^\s:,]+)[:,]", desk.said())
    assert found, desk.said()
    run = found[1]

    # another machine needs no more than access to the home cluster
    elsewhere = json.loads(desk.call("status", run, "--engine", "argo", *where, "-o", "json", home="elsewhere").stdout)
    (waiting,) = elsewhere["waiting"]
    assert (waiting["stage"], waiting["approvers"]) == ("rke2", ADA)
    assert {row["stage"]: row["status"] for row in elsewhere["stages"]} == {"os_prep": "pass", "rke2": "to come"}
    refused = desk.call("approve", run, "--as", ADA, "--evidence", "sha256:" + "0" * 64)
    assert refused.returncode == 64
    assert f"it is {waiting['evidence']} now" in refused.stderr
    # who approves on a third one types what was announced or shown, and nothing else
    assert waiting["how"] == f"bringup approve {run} --as NAME --evidence {waiting['evidence']} --engine argo {' '.join(where)}"
    given = desk.call(*waiting["how"].replace("NAME", ADA).split()[1:], home="third")
    assert f"approved os_prep in {run} as {ADA}, evidence {waiting['evidence']}" in given.stdout, given.stderr

    assert argo.wait(120) == 0, desk.said()
    assert "rke2: pass" in desk.said()
    assert desk.call("verify", str(desk.folder / "home/store/runs" / run)).returncode == 0
    assert b"os_prep" in (desk.folder / "junit.xml").read_bytes()
    assert "sealing the run, which ended as Succeeded" in desk.call("logs", "seal", "--run", run).stdout
    assert "that nobody needs" not in desk.said() + desk.home.home.raw_workflow(run).decode()  # secrets stay where they are
    announced = [json.loads(line) for line in (desk.folder / "announced").read_text().replace("}{", "}\n{").splitlines()]
    assert [(one["run"], one["stage"]) for one in announced] == [(run, "rke2")]

    assert re.search(r"Git [0-9a-f]{40}, small.yaml$", desk.call("report", run).stdout, re.MULTILINE)

    local = desk.call("rehearse", "small.yaml", "--approve-as", ADA)
    assert local.returncode == 0, local.stdout
    rehearsed = re.search(r"run (single-node-\S+):", local.stdout)
    assert rehearsed
    compared = desk.call("diff-runs", run, rehearsed[1])
    assert (compared.returncode, compared.stdout.strip()) == (
        0,
        f"the evidence of {run} and {rehearsed[1]} is equal but for times and ids",
    )
