"""The commands about a run on Argo that no other test reaches: resuming, cancelling, sweeping, and their refusals."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import Follower, begin
from workflows.engines.argo import submit

COMMAND = Path(sys.executable).with_name("bringup")
Drill = Callable[..., Any]


@pytest.fixture
def bringup(emulated: Lab) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line with access to the home cluster."""
    environment = {**os.environ, "BRINGUP_HOME": str(emulated.folder / "runs"), "KUBECONFIG": emulated.where.kubeconfig}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        where = ("--namespace", emulated.where.namespace) if words[0] != "run" else ()
        command = [str(COMMAND), *words, *where]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd=emulated.folder)

    return call


def test_cancel_sweep_and_resume(emulated: Lab, drill: Drill, bringup: Callable[..., Any]) -> None:
    emulated.stand_in()
    begin(emulated, drill, "one")
    first = Follower(emulated, "one")
    first.await_approval()
    assert "waits for an approval before parade since" in bringup("status").stdout  # the newest run, nothing else named
    assert "only a run that has ended is swept" in bringup("sweep", "one").stderr
    assert "one is being cancelled" in bringup("cancel", "one", "--now").stdout
    first.await_end()
    ended = bringup("watch", "one")
    assert (ended.returncode, "bringup sweep one" in ended.stdout) == (65, True)
    assert "one was swept: reported, sealed, its target given back" in bringup("sweep", "one").stdout
    assert "one was reported and sealed already" in bringup("sweep", "one").stdout

    environment = {**os.environ, "BRINGUP_HOME": str(emulated.folder / "runs"), "KUBECONFIG": emulated.where.kubeconfig}
    said = emulated.folder / "said"
    with said.open("w") as out:
        again = subprocess.Popen([str(COMMAND), "resume", "one"], env=environment, stdout=out, stderr=out)
    until(lambda: "waits for an approval" in said.read_text() or again.poll() is not None, "the approval of the new run", 60)
    found = re.search(r"run (three-hosts-\S+) goes on where one ended", said.read_text())
    assert found, said.read_text()
    given = bringup("approve", found[1], "--as", "ada")
    assert given.returncode == 0, given.stderr
    assert again.wait(60) == 0, said.read_text()
    workflow = emulated.home.workflow(found[1])
    assert workflow.metadata.labels["bringup/cluster"] == "three-hosts"
    assert b'"value":"one"' in emulated.home.raw_workflow(found[1]).replace(b": ", b":")


def test_refusals_before_anything_is_written(emulated: Lab, bringup: Callable[..., Any]) -> None:
    deployment = f"/apis/apps/v1/namespaces/{emulated.where.namespace}/deployments/workflow-controller"
    emulated.home.ask(lambda kube: kube.delete(deployment))
    emulated.deploy("quay.io/argoproj/workflow-controller:v3.7.14")
    space = ("--engine", "argo", "--namespace", emulated.where.namespace)
    old = bringup("run", "single-node", *space)
    assert (old.returncode, "v3.7.14; Argo Workflows 4.1.2 or newer is needed" in old.stderr) == (64, True), old.stderr
    secret = bringup("run", "single-node", *space, "--argo-version", "4.1.2")
    assert (secret.returncode, "secret known_hosts" in secret.stderr) == (64, True), secret.stderr
    assert b'"items":[]' in emulated.home.fetch(emulated.home.workflows()).replace(b" ", b"")
    assert "--no-wait is for --engine argo" in bringup("run", "single-node", "--no-wait").stderr
    assert "engine 'jenkins' is none" in bringup("run", "single-node", "--engine", "jenkins").stderr
    nobody = bringup("status", "nobody")
    assert (nobody.returncode, "has no Workflow nobody" in nobody.stderr) == (64, True)


def test_a_name_of_somebody_elses_workflow(emulated: Lab, bringup: Callable[..., Any]) -> None:
    """A Workflow that is not ours has no tasks of ours: a sentence, no traceback."""
    manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "theirs", "namespace": emulated.where.namespace, "annotations": {"bringup/submission": "x"}},
        "spec": {"entrypoint": "x", "templates": [{"name": "x", "suspend": {}}]},
    }
    submit.submit(emulated.home, manifest)
    answer = bringup("status", "theirs")
    assert (answer.returncode, "Traceback" in answer.stderr) == (64, False), answer.stderr
    assert "is no run of ours" in answer.stderr
