"""Approvals that the run itself announces: with nobody following, once, the same on both engines, and never in the run's way."""

import dataclasses
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steps.clients.kube.client import Kube
from steps.clients.store import Store
from steps.contract.runs import approval
from steps.contract.verdict import Status
from steps.report import source
from steps.report.assembly import build
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import approve
from tests.unit.steps.chat import CANARY, Chat, serving
from workflows.engines import launch, open_approvals, run_inputs
from workflows.engines.argo import approval_patches, installer, prerequisites, submission, waits
from workflows.engines.folders import StateFolder as Runs
from workflows.engines.local import inbox
from workflows.engines.local.result import read_status
from workflows.engines.run_comparison import differences
from workflows.plan.model import Starts
from workflows.render import starts
from workflows.render.steps import Settings
from workflows.spec.sections.schedule import EventTrigger, Schedule

Drill = Callable[..., Any]
GATE, TELLS = "approve-parade", "announce-parade"


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Chat]:
    """A webhook whose URL lies in the file `url`."""
    with serving() as made:
        (tmp_path / "url").write_text(made.url)
        yield made


def begin(lab: Lab, drill: Drill, name: str, how: str = "") -> None:
    """Install and submit as `bringup run --no-wait` does, or as Argo does for a schedule or an event: nobody follows."""
    plan, bundle = drill(lab.where.namespace, lab.target, None, lab.folder / "url")
    home = lab.home
    installer.install(home, plan, bundle, prerequisites.collect_secrets(home, plan, Path("/"), {}))
    manifest = submission.workflow(name, plan, bundle)
    if how:
        event = EventTrigger(name="replaced", selector='discriminator == "dc1"')
        started = dataclasses.replace(plan, starts=Starts(schedule=Schedule.model_validate({"cron": "0 2 * * 6"}), events=(event,)))
        (rule,) = (one for one in starts.starts(started, bundle.template, Settings()) or () if one["kind"] == how)
        manifest |= {"spec": (starts.workflow(rule) or {})["spec"]}
    submission.submit(home, manifest)


def phases(lab: Lab, run: str) -> dict[str, str]:
    """Phase by display name."""
    return {node.display_name: node.phase for node in lab.home.workflow(run).nodes().values()}


def ended(lab: Lab, run: str) -> str:
    until(lambda: lab.home.workflow(run).finished, "the end of the run", 60)
    return lab.home.workflow(run).status.phase


def verdict(lab: Lab, run: str) -> Status:
    (record,) = Store(lab.store).records(run, "parade", approval.ANNOUNCE)
    assert record.verdict is not None
    return record.verdict.status


@pytest.mark.parametrize("how", ["", "CronWorkflow", "WorkflowEventBinding"])
def test_a_run_that_nobody_follows_is_announced_once(cluster: Lab, drill: Drill, chat: Chat, how: str) -> None:
    cluster.stand_in()
    begin(cluster, drill, "one", how)
    until(lambda: chat.got, "the announcement", 60)
    until(lambda: phases(cluster, "one").get(TELLS) == "Succeeded", "the end of the announcement", 60)
    assert phases(cluster, "one")[GATE] == "Running"
    approve(cluster, "one")
    assert ended(cluster, "one") == "Succeeded"
    (told,) = chat.got
    assert (told["run"], told["stage"], told["cluster"], told["approvers"]) == ("one", "parade", "three-hosts", ["ada"])
    assert told["evidence"] == Store(cluster.store).evidence_digest("one", "drill")
    where = f"--engine argo --namespace {cluster.where.namespace}"
    assert told["how"] == f"bringup approve one --as NAME --evidence {told['evidence']} {where}"
    assert verdict(cluster, "one") is Status.PASS
    assert CANARY.encode() not in cluster.home.raw_workflow("one")
    kept = [path for path in cluster.store.rglob("*") if path.is_file() and "secrets" not in path.parts]
    assert not [path for path in kept if CANARY.encode() in path.read_bytes()]


def test_an_announcement_that_fails_shows_and_holds_nothing_up(cluster: Lab, drill: Drill, chat: Chat) -> None:
    """Neither the run nor its stage; Argo's UI has the failed node with its output, the report the reason."""
    chat.answers = [404]
    cluster.stand_in()
    begin(cluster, drill, "one")
    until(lambda: phases(cluster, "one").get(TELLS) == "Failed", "the failure of the announcement", 60)
    assert phases(cluster, "one")[GATE] == "Running"
    workflow = cluster.home.workflow("one")
    shown = [node for node in workflow.nodes().values() if node.display_name.startswith(TELLS) and node.outputs]
    assert ("verdict", "fail") in {(one.name, one.value) for node in shown if node.outputs for one in node.outputs.parameters}
    (wait,) = waits.find_waits(cluster.home, workflow)
    assert wait.sentence == "an approval before parade (its announcement failed)"
    approve(cluster, "one")
    assert ended(cluster, "one") == "Succeeded"
    report = build(source.read(Store(cluster.store), "one"))
    assert report.status == Status.PASS
    (trouble,) = report.troubles
    assert (trouble.stage, trouble.task, "answered 404" in trouble.reason) == ("parade", approval.ANNOUNCE, True)
    assert len(chat.got) == 1


@pytest.mark.parametrize("status", [204, 404])
def test_a_refused_approval_fails_the_run_whatever_became_of_the_announcement(
    cluster: Lab, drill: Drill, chat: Chat, status: int
) -> None:
    """The stage is left out then, and takes the phase of what it came after: of the two, the failed one."""
    chat.answers = [status]
    cluster.stand_in()
    begin(cluster, drill, "one")
    until(lambda: phases(cluster, "one").get(TELLS) in ("Succeeded", "Failed"), "the announcement", 60)
    approval_patches.answer(
        cluster.home, "one", GATE, {"decision": "reject", "approver": "ada", "evidence": "none"}, "answered by ada"
    )
    assert ended(cluster, "one") == "Failed"
    assert phases(cluster, "one")["parade"] == "Omitted"
    report = build(source.read(Store(cluster.store), "one"))
    assert (report.status, "ada answered reject" in report.sentence) == (Status.FAIL, True)


def clear(cluster: Lab) -> None:
    """Nothing that an earlier run made is there: each of two that are compared creates it."""
    target = Kube.from_file(cluster.target)
    for name in ("drill-first", "drill-second", "parade-first", "parade-second"):
        target.delete(f"/api/v1/namespaces/default/configmaps/{name}")


def test_both_engines_announce_alike(cluster: Lab, drill: Drill, chat: Chat) -> None:
    clear(cluster)
    cluster.stand_in()
    begin(cluster, drill, "by-argo")
    until(lambda: phases(cluster, "by-argo").get(TELLS) == "Succeeded", "the announcement", 60)
    approve(cluster, "by-argo")
    assert ended(cluster, "by-argo") == "Succeeded"
    clear(cluster)
    folder = Runs(cluster.folder / "here").run("by-itself")
    plan, bundle = drill(cluster.where.namespace, cluster.target, None, cluster.folder / "url")
    run_inputs.write(folder, plan, bundle, Path("/"), {})
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(launch.start(folder, {}, None)))
    thread.start()
    local = Store(folder.home.store)
    until(lambda: local.records("by-itself", "parade", approval.ANNOUNCE), "the announcement", 60)
    until(lambda: read_status(folder.engine).gates, "the gate", 60)
    (gate,) = read_status(folder.engine).gates
    one = open_approvals.read_approval(folder, gate.name)
    ticket = inbox.send(
        folder.engine, "approve", node=gate.name, parameters=open_approvals.parameters(one, "pass", "ada"), message=""
    )
    assert inbox.wait(folder.engine, ticket, 20)
    thread.join(60)
    assert results[0].phase == "Succeeded"
    assert [told["run"] for told in chat.got] == ["by-argo", "by-itself"]
    assert ["--engine argo" in told["how"] for told in chat.got] == [True, False]
    shutil.copytree(folder.stored, cluster.store / "runs/by-itself", symlinks=True)
    assert differences(Store(cluster.store), "by-argo", "by-itself") == ()
