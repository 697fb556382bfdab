"""A run from submit to its end, and what a follower lives through without losing or doubling anything."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from steps.clients.store import Store
from steps.contract.exit import ExitCode
from steps.contract.run_records import Cancelled
from tests.unit.engines.argo.lab import Lab, until
from workflows.engines.argo import approval_patches, cancellation, installer, prerequisites, submission
from workflows.engines.argo import follower as follow
from workflows.engines.argo.home import NoWorkflow
from workflows.engines.argo.resource_watch import WatchPace
from workflows.engines.local.result import News, NodeNews

Drill = Callable[..., Any]
QUICK = WatchPace(round=1.0, first=0.05, most=0.5, credentials=30.0)
BY_ADA = Cancelled(who="ada", how="bringup cancel", when=1.0)
GIVEN = {"decision": "pass", "approver": "ada", "evidence": ""}


def begin(lab: Lab, drill: Drill, name: str = "r1") -> None:
    """Install and submit the drill."""
    plan, bundle = drill(lab.where.namespace, lab.target)
    home = lab.home
    installer.install(home, plan, bundle, prerequisites.collect_secrets(home, plan, Path("/"), {}))
    submission.submit(home, submission.workflow(name, plan, bundle))


class Follower:
    """Follows a run in a thread of its own."""

    def __init__(self, lab: Lab, name: str = "r1") -> None:
        self._lab, self._name = lab, name
        self.news: list[News] = []
        self.said: list[str] = []
        self.last: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.last = follow.follow(self._lab.home, self._name, self.news.append, self.said.append, pace=QUICK)
        except NoWorkflow as error:
            self.last = error

    def saw(self, name: str, phase: str) -> bool:
        return any(isinstance(one, NodeNews) and (one.node.name, one.node.phase) == (name, phase) for one in self.news)

    def await_approval(self) -> None:
        until(lambda: self.saw("approve-parade", "Running"), "the approval")

    def await_end(self) -> Any:
        until(lambda: self.last is not None, "the end of the run")
        self._thread.join()
        return self.last


def evidence(lab: Lab, run: str = "r1") -> str:
    return Store(lab.store).evidence_digest(run, "drill")


def approve(lab: Lab, run: str = "r1") -> None:
    approval_patches.answer(lab.home, run, "approve-parade", {**GIVEN, "evidence": evidence(lab, run)}, "answered by ada")


def records(lab: Lab, run: str = "r1") -> list[str]:
    """Keys of all evidence of a run."""
    return [key.split("/evidence/")[1] for key in Store(lab.store).keys(f"runs/{run}/evidence")]


ONCE = [f"{task}/0000/01.json" for task in ("drill/apply", "drill/judge", "parade/apply", "parade/confirm", "parade/judge")]
"""Evidence records that a run leaves if each of its tasks ran exactly once."""


def assert_whole(lab: Lab, last: Any, run: str = "r1") -> None:
    """The run passed, nothing is missing, and nothing was done twice."""
    assert (last.status.phase, follow.exit_code(last.status.phase)) == ("Succeeded", ExitCode.OK)
    assert [key for key in records(lab, run) if not key.startswith("run/")] == ONCE
    report = json.loads((lab.store / f"runs/{run}/report/report.json").read_bytes())
    assert report["status"] == "pass"


def test_a_run_from_submit_to_its_report(cluster: Lab, drill: Drill) -> None:
    cluster.stand_in()
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    approve(cluster)
    assert_whole(cluster, follower.await_end())
    seen = [one.node.name for one in follower.news if isinstance(one, NodeNews) and one.node.phase == "Succeeded"]
    order = ["open", "drill", "approve-parade", "confirm-parade", "parade"]
    assert [name for name in seen if name in order] == order
    (gate,) = [node for node in follower.last.nodes().values() if node.type == "Suspend"]
    assert (gate.message, gate.outputs.parameters[0].value) == ("answered by ada", "pass")
    assert follower.said == []


def test_a_follower_that_was_killed_is_followed_by_another(cluster: Lab, drill: Drill) -> None:
    cluster.stand_in()
    begin(cluster, drill)
    Follower(cluster).await_approval()  # nobody looks at this one any more
    approve(cluster)
    late = Follower(cluster)
    assert_whole(cluster, late.await_end())
    assert late.saw("r1", "Succeeded")


@pytest.mark.parametrize("told", ["at once", "late"])
def test_the_api_server_restarts_with_other_credentials(emulated: Lab, drill: Drill, told: str) -> None:
    emulated.stand_in()
    begin(emulated, drill)
    follower = Follower(emulated)
    follower.await_approval()
    write = emulated.restart(tell=told == "at once")
    if told == "late":
        until(lambda: follower.said, "a word about the refused credentials")
        write()
    until(lambda: not follower.said or "answers again" in follower.said[-1], "the follower to be back")
    approve(emulated)
    assert_whole(emulated, follower.await_end())
    assert [one for one in follower.news if isinstance(one, NodeNews) and one.waits][1:] == []


@pytest.mark.parametrize("how", ["drop_watches", "expire_watches"])
def test_watches_are_cut_and_revisions_expire(emulated: Lab, drill: Drill, how: str) -> None:
    emulated.stand_in()
    begin(emulated, drill)
    follower = Follower(emulated)
    follower.await_approval()
    for _ in range(3):
        emulated.disturb(**{how: True})
    approve(emulated)
    emulated.disturb(**{how: True})
    assert_whole(emulated, follower.await_end())


def test_an_overloaded_api_server_is_borne(emulated: Lab, drill: Drill) -> None:
    emulated.stand_in()
    begin(emulated, drill)
    follower = Follower(emulated)
    follower.await_approval()
    emulated.disturb(fail_next={"count": 6, "status": 503})
    approve(emulated)
    assert_whole(emulated, follower.await_end())


def test_a_stand_in_that_was_stopped_is_no_end(cluster: Lab, drill: Drill) -> None:
    """Without its controller a run stands still; whoever comes back goes on with it."""
    begin(cluster, drill)
    follower = Follower(cluster)
    cluster.stand_in()
    follower.await_approval()
    approve(cluster)
    assert_whole(cluster, follower.await_end())


def test_a_deleted_pod_is_tried_again(cluster: Lab, drill: Drill, tmp_path: Path) -> None:
    cluster.stand_in(environment={"BRINGUP_TEST_HOLD": str(tmp_path / "go")})
    manifest = shell(cluster, "wait-for-it", 'echo begun; until [ -e "$BRINGUP_TEST_HOLD" ]; do sleep 0.05; done; echo done')
    submission.submit(cluster.home, manifest)
    follower = Follower(cluster, "wait-for-it")
    pod = until(lambda: next(iter(running(cluster, "wait-for-it")), ""), "the pod")
    cluster.home.ask(lambda kube: kube.delete(cluster.home.core("pods", pod)))
    until(lambda: follower.saw("work(0)", "Error"), "the lost pod")
    (tmp_path / "go").touch()
    assert follower.await_end().status.phase == "Succeeded"
    attempts = {node.display_name: (node.phase, node.message) for node in follower.last.nodes().values() if node.type == "Pod"}
    assert attempts == {"work(0)": ("Error", "pod deleted"), "work(1)": ("Succeeded", "")}


def test_a_lost_result_is_said_once(cluster: Lab) -> None:
    cluster.stand_in(withhold={"work": 10.0})
    submission.submit(cluster.home, shell(cluster, "silent", "true"))
    until(lambda: cluster.home.workflow("silent").status.phase, "the stand-in to take it")  # or that it is late is said too
    said: list[str] = []
    last = follow.follow(cluster.home, "silent", lambda _: None, said.append, pace=QUICK, late=0.5)
    assert last.status.phase == "Succeeded"
    (sentence,) = said
    assert "ended, but its result has not reached Argo (work(0) is Running)" in sentence
    assert "may ServiceAccount " in sentence
    assert "create and patch workflowtaskresults, and does the workflow-controller run?" in sentence


def test_nobody_takes_the_run(cluster: Lab) -> None:
    submission.submit(cluster.home, shell(cluster, "alone", "true"))
    follower = Follower(cluster, "alone")
    said: list[str] = []

    def enough(sentence: str) -> None:
        said.append(sentence)
        cluster.home.ask(lambda kube: kube.delete(cluster.home.workflows("alone")))

    with pytest.raises(NoWorkflow):
        follow.follow(cluster.home, "alone", lambda _: None, enough, pace=QUICK, late=0.0)
    assert said == ["no workflow-controller has taken the run yet: is one running, and does it serve this namespace?"]
    assert isinstance(follower.await_end(), NoWorkflow)


def test_compressed_nodes_are_read_and_answered(cluster: Lab, drill: Drill) -> None:
    cluster.stand_in(compress=True)
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    assert not cluster.home.workflow("r1").status.nodes
    approve(cluster)
    assert_whole(cluster, follower.await_end())


def test_cancelling_ends_steps_and_reports(cluster: Lab, drill: Drill) -> None:
    cluster.stand_in()
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    cancellation.cancel(cluster.home, "r1", BY_ADA)
    last = follower.await_end()
    assert (last.status.phase, follow.exit_code(last.status.phase)) == ("Failed", ExitCode.GATE_FAILED)
    assert (cluster.store / "runs/r1/seal.json").exists()  # Stop runs the exit handler
    with pytest.raises(cancellation.AlreadyEnded, match="has ended: Failed"):
        cancellation.cancel(cluster.home, "r1", BY_ADA)


def shell(lab: Lab, name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A Workflow of one retried shell command, beside our own pipelines."""
    container = {"image": "none", "command": ["sh", "-c", script]}
    retry = {"limit": "2", "retryPolicy": "Always"}
    task = {"name": "work", "template": "work"}
    templates = [{"name": "main", "dag": {"tasks": [task]}}, {"name": "work", "container": container, "retryStrategy": retry}]
    meta = {"name": name, "namespace": lab.where.namespace, "annotations": {"bringup/submission": name}}
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": meta,
        "spec": {"entrypoint": "main", "templates": templates, **spec},
    }


def running(lab: Lab, run: str) -> list[str]:
    path = f"{lab.home.core('pods')}"
    found = json.loads(lab.home.fetch(path, {"labelSelector": f"workflows.argoproj.io/workflow={run}"}))
    return [pod["metadata"]["name"] for pod in found["items"] if pod["status"].get("phase") == "Running"]
