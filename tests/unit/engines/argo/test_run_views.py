"""Commands on another machine show a run on Argo as it is now, or how old their view is, and never end it while it goes on."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest

from steps.clients.kube.client import Kube
from steps.clients.store import Store
from steps.contract.runs import quarantine
from tests.unit import warm_commands
from tests.unit.engines.argo.lab import Lab
from tests.unit.engines.argo.test_follow import Follower, approve, begin
from tests.unit.warm_commands import COMMAND
from workflows.engines.argo import follower as follow
from workflows.engines.argo import waits
from workflows.engines.argo.workflow_objects import ResourceMeta, Workflow, WorkflowNode, WorkflowStatus, seconds
from workflows.engines.local.result import NodeNews, RunNodeStatus
from workflows.render import steps
from workflows.render.grammar import gotext

Drill = Callable[..., Any]
Machine = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def machine(cluster: Lab) -> Callable[[str], Machine]:
    """Another machine by its name, which knows nothing yet; `there` has a command name the place of the runs."""

    def make(name: str) -> Machine:
        environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / name), "KUBECONFIG": cluster.where.kubeconfig}

        def call(*words: str, there: bool = False, shell: str = "") -> subprocess.CompletedProcess[str]:
            told = ("--namespace", cluster.where.namespace) if there else ()
            if not shell:
                return warm_commands.run([*words, *told], environment, cluster.folder)
            line = ["bash", "-c", f'exec "$@" {shell}', "bash", str(COMMAND), *words, *told]
            return subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, cwd=cluster.folder)

        return call

    return make


def held(cluster: Lab, drill: Drill, **ways: Any) -> Follower:
    """A run that waits for its approval."""
    cluster.stand_in(**ways)
    begin(cluster, drill, "one")
    follower = Follower(cluster, "one")
    follower.await_approval()
    return follower


def without_home(cluster: Lab) -> Callable[[], None]:
    """Home is out of reach: the kubeconfig is another one until the returned function is called."""
    file = Path(cluster.where.kubeconfig)
    text = file.read_text()
    file.write_text(text.replace("token: ", "token: un"))

    def back() -> None:
        file.write_text(text)

    return back


def rows(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str, str]]:
    return [(one["id"], one["status"], one["reason"]) for one in json.loads(done.stdout)["stages"]]


def test_a_report_tells_how_a_run_stands_and_how_old_that_is(
    emulated: Lab, drill: Drill, machine: Callable[[str], Machine]
) -> None:
    follower, other = held(emulated, drill), machine("other")
    now = other("report", "one", "-o", "json", there=True)
    assert rows(now)[1] == ("parade", "not run", "waits for an approval"), now.stderr
    assert "goes on: not run: parade: waits for an approval" in other("timeline", "one").stdout
    suites = ElementTree.fromstring(other("report", "one", "-o", "junit").stdout.encode())
    (error,) = suites.iter("error")
    assert error.attrib == {"type": "unfinished", "message": "not finished: parade: waits for an approval"}
    approve(emulated, "one")
    assert follower.await_end().status.phase == "Succeeded"

    back = without_home(emulated)
    old = other("report", "one")
    assert (old.returncode, "parade: not started yet" in old.stdout) == (0, True), old.stderr
    assert "note: run one as of 20" in old.stderr
    assert "newer: bringup pull one" in old.stderr
    assert "**run** one: goes on" in other("timeline", "one").stdout
    nothing = machine("third")("report", "one", there=True)
    assert (nothing.returncode, "401 Unauthorized" in nothing.stderr) == (65, True), nothing.stderr
    back()

    passed = other("report", "one")
    assert ("all 2 stages passed" in passed.stdout, passed.stderr) == (True, "")
    emulated.home.ask(lambda kube: kube.delete(emulated.home.workflows("one")))
    without_home(emulated)
    assert other("report", "one").stdout == passed.stdout  # sealed here: home is not asked


def test_the_evidence_of_a_run_whose_workflow_is_gone(cluster: Lab, drill: Drill, machine: Callable[[str], Machine]) -> None:
    follower, other = held(cluster, drill), machine("other")
    approve(cluster, "one")
    follower.await_end()
    cluster.home.ask(lambda kube: kube.delete(cluster.home.workflows("one")))
    logs = other("logs", "drill", "--run", "one", there=True)
    assert (logs.returncode, "drill/judge" in logs.stdout) == (0, True), logs.stderr
    brought = machine("third")("pull", "one", there=True)
    assert (brought.returncode, "files of one are in" in brought.stdout) == (0, True), brought.stderr
    assert "all 2 stages passed" in machine("third")("report", "one").stdout
    none = other("pull", "nobody", there=True)
    assert (none.returncode, "has no Workflow nobody, and its store no run of that name" in none.stderr) == (64, True), none.stderr
    nothing = other("logs", "--run", "nobody", there=True)
    assert (nothing.returncode, "its store no run of that name" in nothing.stderr) == (64, True), nothing.stderr
    template = cluster.home.newest_template()
    cluster.home.ask(lambda kube: kube.delete(f"{cluster.home.workflows().removesuffix('s')}templates/{template}"))
    nothing = machine("fourth")("pull", "one", there=True)
    assert (nothing.returncode, "Role bringup-submitter" in nothing.stderr) == (64, True), nothing.stderr
    for name in ("one/secrets", "../one"):
        assert machine("third")("pull", name, there=True).returncode == 64


def test_status_says_why_a_stage_failed(emulated: Lab, drill: Drill, machine: Callable[[str], Machine]) -> None:
    cluster = emulated
    cluster.target.write_text(cluster.target.read_text().replace("token: ", "token: un"))
    cluster.stand_in()
    begin(cluster, drill, "one")
    Follower(cluster, "one").await_end()
    other = machine("other")
    unread = json.loads(other("status", "one", "-o", "json", there=True).stdout)["stages"]
    report = other("report", "one", "-o", "json")
    (why,) = [reason for stage, _, reason in rows(report) if stage == "drill"]
    told = json.loads(other("status", "one", "-o", "json").stdout)["stages"]
    assert told[0] == unread[0] == {"stage": "drill", "status": json.loads(report.stdout)["stages"][0]["status"], "reason": why}


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("main: Error (exit code 65): fail 0/2: 0 of 2 nodes pass; n1: slow", "0 of 2 nodes pass; n1: slow"),
        ("main: Error (exit code 65)", "main: Error (exit code 65); why: bringup report one"),
        ("", "why: bringup report one"),
    ],
)
def test_the_reason_of_a_stage_as_far_as_its_judge_tells(message: str, reason: str) -> None:
    """A pod that was evicted, or that is of an older bringup, leaves no last word."""
    outputs: dict[str, str | None] = {"verdict": "fail"}
    judge = RunNodeStatus("one.drill.judge", "judge", "Pod", "Failed", message, "drill-judge", "", {}, outputs, 65, 1.0, 2.0, [])
    assert follow.stages(["drill"], [judge], "one") == [{"stage": "drill", "status": "fail", "reason": reason}]


def test_the_reason_of_a_refused_approval_is_shown_for_its_stage() -> None:
    said = "somebody resumed the run without an answer"
    confirmed = RunNodeStatus(
        "one.confirm",
        "confirm",
        "Pod",
        "Failed",
        f"main: Error (exit code 65): fail: {said}",
        "drill-confirm",
        "",
        {},
        {},
        65,
        1.0,
        2.0,
        [],
    )
    left_out = RunNodeStatus(
        "one.drill", "drill", "Skipped", "Omitted", "omitted: depends condition not met", "drill", "", {}, {}, None, 2.0, 2.0, []
    )
    (row,) = follow.stages(["drill"], [confirmed, left_out], "one")
    assert row == {"stage": "drill", "status": "not run", "reason": f"its approval was refused: {said}"}


def run_with(*nodes: dict[str, Any], phase: str = "Running") -> Workflow:
    entries = {node["id"]: {"name": f"w.{node['id']}", **node} for node in nodes}
    return msgspec.convert({"metadata": {"name": "w"}, "status": {"phase": phase, "nodes": entries}}, Workflow)


def test_a_controller_that_is_away_is_said_to_be_away() -> None:
    """Only the controller could go on: every pod has ended, nobody is waited for, and for a while nothing happened."""
    dag = {"id": "dag", "type": "DAG", "phase": "Running", "startedAt": "2026-11-29T10:00:00Z"}
    ended = {"id": "a", "type": "Pod", "phase": "Succeeded", "finishedAt": "2026-11-29T10:01:00Z"}
    at, later = seconds("2026-11-29T10:01:00Z"), seconds("2026-11-29T10:03:00Z")
    assert waits.idle_since(run_with(dag, ended), later) == at
    assert waits.idle_since(run_with(dag, ended), at + 5.0) == 0.0
    open_pod, gate = {"id": "b", "type": "Pod", "phase": "Running"}, {"id": "g", "type": "Suspend", "phase": "Running"}
    assert waits.idle_since(run_with(dag, ended, open_pod), later) == 0.0
    assert waits.idle_since(run_with(dag, ended, gate), later) == 0.0
    assert waits.idle_since(run_with(dag, ended, phase="Succeeded"), later) == 0.0
    assert gotext.seconds(steps.RETRY_MOST) == waits.LONGEST_BACKOFF
    backs_off = {"id": "r", "type": "Retry", "phase": "Running"}
    assert waits.idle_since(run_with(dag, ended, backs_off), later) == 0.0, "the longest back-off has not passed"
    assert waits.idle_since(run_with(dag, ended, backs_off), at + 400.0) == at


def test_the_quarantine_of_a_run_on_argo(emulated: Lab, drill: Drill, machine: Callable[[str], Machine]) -> None:
    """A release takes our cordon off in the target, whose kubeconfig is in home alone, and is kept in home's store."""
    cluster = emulated
    held(cluster, drill)
    store = Store(cluster.store)
    entry = quarantine.QuarantineEntry(node="node1", stage="drill", gate="drill/judge", reason="node1: a GPU is missing")
    store.write(quarantine.key("one", "drill"), quarantine.encode((entry,)))
    target = Kube.from_file(cluster.target)
    meta = {"name": "node1", "annotations": {quarantine.ANNOTATION: "{}"}}
    target.create({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {"unschedulable": True}})
    other, third = machine("other"), machine("third")
    assert "a GPU is missing" in other("quarantine", "list", "one", there=True).stdout
    unknown = other("quarantine", "release", "node9", "--run", "one", "--as", "ada")
    assert (unknown.returncode, "node9 is not quarantined in run one" in unknown.stderr) == (64, True), unknown.stderr
    done = other("quarantine", "release", "node1", "--run", "one", "--as", "ada")
    assert (done.returncode, done.stdout) == (0, "released node1 as ada, uncordoned: it takes part again in the next run\n"), (
        done.stderr
    )
    kept = quarantine.decode_release(store.read(quarantine.release_key("one", "node1")) or b"")
    assert (kept.who, kept.uncordoned) == ("ada", True)
    shown = target.get("/api/v1/nodes/node1", dict[str, Any]) or {}
    assert (shown["spec"].get("unschedulable"), shown["metadata"].get("annotations", {})) == (None, {})
    for one in (other, third):
        (row,) = json.loads(one("quarantine", "list", "one", "-o", "json", there=True).stdout)
        assert row["released"].startswith("ada at 20")
    twice = third("quarantine", "release", "node1", "--run", "one", "--as", "bob")
    assert (twice.returncode, "was released by ada at" in twice.stderr) == (64, True), twice.stderr
    cluster.home.ask(lambda kube: kube.delete(cluster.home.workflows("one")))
    gone = other("quarantine", "release", "node2", "--run", "one", "--as", "ada")
    assert (gone.returncode, "kubectl uncordon NODE" in gone.stderr) == (64, True), gone.stderr


def test_a_lost_node_takes_no_other_logs_away(emulated: Lab, drill: Drill, machine: Callable[[str], Machine]) -> None:
    held(emulated, drill)
    names = [one["metadata"]["name"] for one in json.loads(emulated.home.fetch(emulated.home.core("pods")))["items"]]
    (lost,) = [name for name in names if "drill-judge" in name]
    path = f"{emulated.home.core('pods', lost)}/log"
    emulated.disturb(fail_next={"status": 500, "methods": ["GET"], "path_prefix": path, "count": 1000})
    done = machine("other")("logs", "--run", "one", there=True)
    assert done.returncode == 0, done.stderr
    assert "(its pod's log cannot be read now: GET" in done.stdout
    assert "drill/judge/0000" in done.stdout  # as the store has it
    assert "created ConfigMap default/drill-first" in done.stdout  # another pod, as it says itself


def test_evidence_that_is_not_what_was_sealed_is_no_success(cluster: Lab, drill: Drill, machine: Callable[[str], Machine]) -> None:
    follower, other = held(cluster, drill), machine("other")
    approve(cluster, "one")
    follower.await_end()
    (cluster.store / "runs/one/plan.json").unlink()
    ended = other("watch", "one", there=True)
    said = "its evidence is not what was sealed (plan.json: missing): bringup verify"
    assert (ended.returncode, said in ended.stdout) == (65, True), ended.stdout


def test_a_closed_output_is_no_bug(cluster: Lab, drill: Drill, machine: Callable[[str], Machine]) -> None:
    held(cluster, drill)
    closed = machine("other")("status", "one", there=True, shell=">&-")
    assert (closed.returncode, closed.stderr) == (0, "")


def test_what_happens_in_one_second_is_told_in_its_order() -> None:
    """Argo's times are whole seconds: what was waited for before is told before, whatever the names are."""
    chain = ["open", "drill-judge", "approve-parade", "a-late-one"]
    nodes = {
        name: WorkflowNode(id=name, name=name, type="Pod", started_at="2026-11-22T03:00:00Z", children=(after,))
        for name, after in zip(chain, [*chain[1:], "gone"], strict=True)
    }
    workflow = Workflow(
        metadata=ResourceMeta(name="one"), status=WorkflowStatus(phase="Running", nodes=dict(sorted(nodes.items())))
    )
    assert [one.node.name for one in follow.NewsFeed().take(workflow) if isinstance(one, NodeNews)] == chain
