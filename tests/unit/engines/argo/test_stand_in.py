"""The stand-in itself: what it shows equals what a real controller was recorded to show, and its end loses nothing."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.argo_stand_in.workflow_status import workflow_status
from tests.unit.engines.argo.lab import DATA, Lab, until
from tests.unit.engines.argo.test_follow import Follower, shell
from workflows.engines.argo import submission
from workflows.engines.argo.workflow_objects import WORKFLOW_LABEL, seconds
from workflows.engines.local.local_engine import LocalEngine
from workflows.engines.local.manifest_execution import read_manifests
from workflows.engines.local.result import NodeNews
from workflows.engines.local.run_settings import RunPaths

CASES = DATA / "argo_conformance/cases"
SHOWN = (
    "output-of-failed-step",
    "depends-failed-branch",
    "when-on-output",
    "items-mixed",
    "nested-dag",
    "output-global",
    "steps-failure",
)


def rows(shown: dict[str, Any]) -> list[dict[str, Any]]:
    """Nodes of a status in the form of the recordings."""
    nodes = shown["nodes"]
    found = []
    for node in nodes.values():
        outputs = node.get("outputs", {})
        given = {one["name"]: one.get("value") for one in outputs.get("parameters", ())}
        row = {
            "path": node["name"],
            "name": node["displayName"],
            "type": node["type"],
            "phase": node["phase"],
            "templateName": node.get("templateName", ""),
            "boundary": nodes[node["boundaryID"]]["displayName"] if node.get("boundaryID") else "",
            "childPaths": sorted(nodes[child]["name"] for child in node.get("children", ())),
            "inputs": {one["name"]: one["value"] for one in node.get("inputs", {}).get("parameters", ())},
            "outputs": {name: value for name, value in given.items() if value is not None},
            "exitCode": outputs.get("exitCode"),
            "nodeFlag": node.get("nodeFlag"),
        }
        found.append(row)
        assert seconds(node["startedAt"]) <= (seconds(node["finishedAt"]) or float("inf"))
    return sorted(found, key=lambda row: row["path"])


def recorded(case: Path) -> list[dict[str, Any]]:
    nodes = json.loads((case / "recorded.json").read_text())["nodes"]
    found = []
    for node in nodes:
        given = node["outputs"]["parameters"]
        row = {key: node[key] for key in ("path", "name", "type", "phase", "templateName", "boundary")}
        row |= {"childPaths": sorted(node["childPaths"]), "inputs": node["inputs"]["parameters"]}
        row |= {"outputs": {name: value for name, value in given.items() if value is not None}}
        found.append({**row, "exitCode": node["outputs"].get("exitCode"), "nodeFlag": node.get("nodeFlag")})
    return sorted(found, key=lambda row: row["path"])


@pytest.mark.parametrize("name", SHOWN)
def test_what_is_shown_is_what_was_recorded(name: str, tmp_path: Path) -> None:
    if not CASES.exists():
        pytest.skip(f"no recordings in {CASES}: set BRINGUP_TEST_DATA")
    manifest, templates = read_manifests(CASES / name / "workflow.yaml")
    done = LocalEngine(tmp_path, manifest, templates, None, RunPaths.below(tmp_path, private_tmp=True)).run()
    shown = workflow_status(done.plan, done.state, 1.0e9)
    assert rows(shown) == recorded(CASES / name)
    wanted = json.loads((CASES / name / "recorded.json").read_text())
    message = re.sub(rf"{name}-\d+", "<id>", shown["message"] or "")
    assert (shown["phase"], message) == (wanted["phase"], re.sub("<id:[^>]*>", "<id>", wanted["message"]))


def start(lab: Lab, more: dict[str, str]) -> subprocess.Popen[bytes]:
    """A stand-in as a process of its own."""
    command = [sys.executable, "-m", "tests.argo_stand_in", "--backoff", "0", "--kubeconfig", lab.where.kubeconfig]
    command += ["--namespace", lab.where.namespace, "--folder", str(lab.folder / "stand-in"), "--store", str(lab.store)]
    passed = [word for name in more for word in ("--pass-on", name)]
    root = Path(__file__).parents[4]  # `-m tests…` is found from there
    return subprocess.Popen([*command, *passed], cwd=root, env={**os.environ, **more})


def test_a_controller_that_was_killed_is_followed_by_another(cluster: Lab, tmp_path: Path) -> None:
    count, go = tmp_path / "count", tmp_path / "go"
    script = f'echo begun >> {count}; until [ -e "$BRINGUP_TEST_HOLD" ]; do sleep 0.05; done'
    submission.submit(cluster.home, shell(cluster, "held", script))
    follower = Follower(cluster, "held")
    first = start(cluster, {"BRINGUP_TEST_HOLD": str(go)})
    until(count.exists, "the first start")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = start(cluster, {"BRINGUP_TEST_HOLD": str(go)})
    until(lambda: count.read_text().count("begun") == 2, "the second start")
    go.touch()
    assert follower.await_end().status.phase == "Succeeded"
    second.terminate()
    assert second.wait() == 0


def test_the_end_is_shown_also_where_somebody_else_writes_at_that_moment(emulated: Lab, tmp_path: Path) -> None:
    """As after a restart of the API server, when the state that was seen last is not the latest."""
    cluster = emulated
    begun, go = tmp_path / "begun", tmp_path / "go"
    cluster.stand_in()
    submission.submit(cluster.home, shell(cluster, "held", f"touch {begun}; until [ -e {go} ]; do sleep 0.05; done"))
    follower = Follower(cluster, "held")
    until(begun.exists, "the start")
    until(lambda: any(isinstance(one, NodeNews) and one.node.type == "Pod" for one in follower.news), "its pod")
    conflict = {"count": 3, "status": 409, "methods": ["PATCH"], "path_prefix": cluster.home.workflows("held")}
    cluster.disturb(fail_next=conflict)
    go.touch()
    assert follower.await_end().status.phase == "Succeeded"


def pods(lab: Lab, run: str) -> list[str]:
    """Phases of the pods of a run."""
    found = json.loads(lab.home.fetch(lab.home.core("pods"), {"labelSelector": f"{WORKFLOW_LABEL}={run}"}))
    return [one["status"]["phase"] for one in found["items"]]


def test_pods_that_ended_well_stay_as_long_as_the_manifest_says(cluster: Lab) -> None:
    """Also beyond the end of their run: what they said last is read meanwhile."""
    cluster.stand_in()
    for name, delay, script in (("kept", "10m", "exit 0"), ("gone", "1s", "exit 0"), ("failed", "0s", "exit 3")):
        collection = {"strategy": "OnPodSuccess", "deleteDelayDuration": delay}
        submission.submit(cluster.home, shell(cluster, name, script, podGC=collection))
    for name in ("kept", "gone", "failed"):
        Follower(cluster, name).await_end()
    until(lambda: not pods(cluster, "gone"), "the end of a pod whose time has come")
    assert (pods(cluster, "kept"), set(pods(cluster, "failed"))) == (["Succeeded"], {"Failed"})
