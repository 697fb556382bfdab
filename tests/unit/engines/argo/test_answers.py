"""Approvals on Argo: one gate and no other, on the evidence that was shown, signed where keys are listed; pull, sweep, waits."""

import gzip
import hashlib
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract.canonical import canonical
from steps.contract.runs import approval
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import BY_ADA, QUICK, Follower, approve, assert_whole, begin, evidence, records, shell
from workflows.engines import open_approvals
from workflows.engines.argo import (
    approval_patches,
    cancellation,
    helper_pods,
    installer,
    logs,
    prerequisites,
    pull,
    run_memory,
    submission,
    waits,
)
from workflows.engines.argo import follower as follow
from workflows.engines.argo.home import decode_workflow
from workflows.engines.argo.workflow_objects import UnreadableStatus, decompress_nodes
from workflows.engines.folders import StateFolder as Runs

Drill = Callable[..., Any]
GATES = {
    "entrypoint": "main",
    "templates": [
        {"name": "main", "dag": {"tasks": [{"name": "one", "template": "gate"}, {"name": "two", "template": "gate"}]}},
        {
            "name": "gate",
            "suspend": {},
            "outputs": {"parameters": [{"name": "decision", "valueFrom": {"supplied": {}, "default": "hold"}}]},
        },
    ],
}


def gates(lab: Lab) -> dict[str, tuple[str, Any]]:
    nodes = lab.home.workflow("gates").nodes().values()
    return {
        node.display_name: (node.phase, node.outputs.parameters[0].value if node.outputs else None)
        for node in nodes
        if node.type == "Suspend"
    }


def test_one_answer_opens_one_gate(cluster: Lab) -> None:
    cluster.stand_in()
    submission.submit(cluster.home, {**shell(cluster, "gates", "true"), "spec": GATES})
    until(lambda: len(gates(cluster)) == 2, "both gates")
    before = cluster.home.raw_workflow("gates")
    patch = approval_patches.answer_patch(decode_workflow(before), json.loads(before), "one", {"decision": "pass"}, "answered")
    assert len(patch["status"]["nodes"]) == 1
    assert patch["metadata"]["resourceVersion"] == json.loads(before)["metadata"]["resourceVersion"]
    approval_patches.answer(cluster.home, "gates", "one", {"decision": "pass"}, "answered")
    assert gates(cluster) == {"one": ("Succeeded", "pass"), "two": ("Running", None)}
    with pytest.raises(open_approvals.NotWaiting, match="does not wait at one"):
        approval_patches.answer(cluster.home, "gates", "one", {"decision": "pass"}, "answered")
    with pytest.raises(open_approvals.NotWaiting, match="wants decision, not decision, more"):
        approval_patches.answer(cluster.home, "gates", "two", {"decision": "pass", "more": "x"}, "answered")
    approval_patches.answer(cluster.home, "gates", "two", {"decision": "reject"}, "no")
    last = follow.follow(cluster.home, "gates", lambda _: None, lambda _: None, pace=QUICK)
    assert (last.status.phase, gates(cluster)["two"]) == ("Succeeded", ("Succeeded", "reject"))


def test_a_bare_resume_approves_nothing(cluster: Lab, drill: Drill) -> None:
    """`argo resume` sets only the gate's phase: its parameters get no value, and task `confirm` refuses to go on without one."""
    cluster.stand_in()
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    (gate,) = follow.open_gates(cluster.home.workflow("r1"))
    patch = {"status": {"nodes": {gate.id: {"phase": "Succeeded", "finishedAt": "2026-11-21T12:00:00Z"}}}}
    cluster.home.ask(lambda kube: kube.merge(cluster.home.workflows("r1"), patch))
    assert follower.await_end().status.phase in ("Failed", "Error")
    assert not [key for key in records(cluster) if key.startswith("parade/apply")]


def test_changed_evidence_is_not_approved(cluster: Lab, drill: Drill, runs: Runs) -> None:
    cluster.stand_in()
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    folder = runs.run("r1")
    run_memory.write(folder, run_memory.RunMemory(where=cluster.where))
    (shown,) = approval_patches.waiting_approvals(cluster.home, cluster.home.workflow("r1"), folder, ["approve-parade"])
    assert (shown.stage, shown.approved, shown.evidence) == ("parade", "drill", evidence(cluster))
    assert shown.about.startswith("drill in r1: pass: ")
    open_approvals.remember(folder, [shown])
    open_approvals.check_shown(shown, open_approvals.was_shown(folder, shown))
    Store(cluster.store).write("runs/r1/evidence/drill/apply/0000/02.json", b"{}")
    (now,) = approval_patches.waiting_approvals(cluster.home, cluster.home.workflow("r1"), folder, ["approve-parade"])
    with pytest.raises(open_approvals.EvidenceChanged, match=f"was {shown.evidence} when it was shown"):
        open_approvals.check_shown(now, open_approvals.was_shown(folder, now))
    # and whoever answers on the old evidence all the same is refused by the run itself
    given = {"decision": "pass", "approver": "ada", "evidence": shown.evidence}
    approval_patches.answer(cluster.home, "r1", "approve-parade", given, "answered by ada")
    assert follower.await_end().status.phase == "Failed"


def test_a_signature_reaches_the_store_of_home(cluster: Lab, drill: Drill, runs: Runs, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "ada", "-f", str(key)], check=True)
    public = " ".join(key.with_suffix(".pub").read_text().split()[:2])
    cluster.stand_in()
    plan, bundle = drill(cluster.where.namespace, cluster.target, {"ada": (public,)})
    installer.install(cluster.home, plan, bundle, prerequisites.collect_secrets(cluster.home, plan, Path("/"), {}))
    submission.submit(cluster.home, submission.workflow("r1", plan, bundle))
    follower = Follower(cluster)
    follower.await_approval()
    folder, workflow = runs.run("r1"), cluster.home.workflow("r1")
    (one,) = approval_patches.waiting_approvals(cluster.home, workflow, folder, ["approve-parade"])
    with pytest.raises(open_approvals.NotSigned, match="must be signed"):
        open_approvals.check_key(one, approval.PASS, "ada", "")
    approval_patches.store_signature(cluster.home, workflow, folder, one, "ada", str(key))
    approval_patches.answer(cluster.home, "r1", one.node, open_approvals.parameters(one, approval.PASS, "ada"), "answered by ada")
    assert_whole(cluster, follower.await_end())


# --- the store ------------------------------------------------------------------------------------------------------------


def test_the_store_is_read_in_parts_and_without_secrets(cluster: Lab, drill: Drill, runs: Runs) -> None:
    cluster.stand_in()
    begin(cluster, drill)
    Follower(cluster).await_approval()
    store = Store(cluster.store)
    store.write("runs/r1/secrets/token", b"hush")
    home, workflow, folder = cluster.home, cluster.home.workflow("r1"), runs.run("r1")
    assert pull.pull(home, workflow, folder, limit=500) == len(store.keys("runs/r1")) - 1
    theirs = {key for key in store.keys("runs/r1") if "/secrets/" not in key}
    assert set(Store(runs.store).keys("runs/r1")) == theirs
    assert all(Store(runs.store).read(key) == store.read(key) for key in theirs)
    left = json.loads(home.fetch(home.core("pods"), {"labelSelector": helper_pods.ERRAND}))
    assert left["items"] == []  # short pods go away


def test_what_a_reader_pod_prints_must_be_whole() -> None:
    said = b"noise\nbringup-store begin\nAAAA\nbringup-store end " + json.dumps({"bytes": 3, "sha256": "0" * 64}).encode() + b"\n"
    with pytest.raises(pull.Damaged, match="their digest differs"):
        pull.unpack_answer(said)
    with pytest.raises(pull.Damaged, match="is incomplete"):
        pull.unpack_answer(said[:-20])
    ends = {"bytes": 3, "sha256": hashlib.sha256(bytes(3)).hexdigest(), "next": "runs/r1/b"}
    said = b"bringup-store begin\nAAAA\nbringup-store end " + json.dumps(ends).encode() + b"\n"
    assert pull.unpack_answer(said, "runs/r1/a") == (bytes(3), "runs/r1/b")
    with pytest.raises(pull.Damaged, match="which was read already"):
        pull.unpack_answer(said, "runs/r1/b")


def test_an_archive_of_a_reader_pod_is_bounded_and_is_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    bomb = gzip.compress(bytes(3 << 20))
    for archive, sentence in ((bomb, "has more than 1 MiB"), (bomb[:-40], "in its middle"), (b"no gzip", "no archive")):
        with pytest.raises(pull.Damaged, match=sentence):
            pull.keep(store, "r1", archive, 1 << 20 if sentence.startswith("has") else 4 << 20)
    with pytest.raises(pull.Damaged, match="no archive"):
        pull.keep(store, "r1", gzip.compress(b"no tar" * 200))
    assert not list(tmp_path.iterdir())


def test_a_swept_run_is_reported_and_sealed(cluster: Lab, drill: Drill, runs: Runs) -> None:
    cluster.stand_in()
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    with pytest.raises(cancellation.StillRunning, match="only a run that has ended is swept"):
        cancellation.sweep(cluster.home, cluster.home.workflow("r1"))
    cancellation.cancel(cluster.home, "r1", BY_ADA, now=True)  # Terminate: no exit handler
    last = follower.await_end()
    assert not (cluster.store / "runs/r1/seal.json").exists()
    for _ in range(2):
        cancellation.sweep(cluster.home, last)
        seal = json.loads((cluster.store / "runs/r1/seal.json").read_bytes())
        assert (seal["run"], seal["status"]) == ("r1", "Failed")
    pull.pull(cluster.home, last, runs.run("r1"))
    assert (runs.run("r1").stored / "report/report.html").exists()


def test_logs_come_from_pods_and_then_from_the_store(cluster: Lab, drill: Drill, runs: Runs) -> None:
    cluster.stand_in(delete_delay="0s")
    begin(cluster, drill)
    follower = Follower(cluster)
    follower.await_approval()
    approve(cluster)
    last = follower.await_end()

    def stored() -> dict[str, str]:
        """As far as the store tells it: a pod that podGC took is read there."""
        found = logs.logs(cluster.home, last, runs.run("r1"), "drill.apply")
        return {place: text for place, text in found if place.startswith("runs/r1/")}

    kept = "runs/r1/logs/drill/apply/0000/01.log"
    assert "drill" in until(stored, "the end of its pod")[kept]
    submission.submit(cluster.home, shell(cluster, "loud", "echo said at work; exit 3", podGC={"strategy": "OnPodSuccess"}))
    failed = Follower(cluster, "loud").await_end()
    assert [text for _, text in logs.logs(cluster.home, failed, runs.run("loud"), "work")] == ["said at work"] * 3


# --- waits ----------------------------------------------------------------------------------------------------------------


def test_status_says_what_is_waited_for(cluster: Lab, drill: Drill) -> None:
    begin(cluster, drill, "r1")
    (controller,) = waits.find_waits(cluster.home, cluster.home.workflow("r1"))
    assert (controller.kind, controller.since > 0) == (waits.CONTROLLER, True)
    cluster.stand_in()
    Follower(cluster, "r1").await_approval()
    (person,) = waits.find_waits(cluster.home, cluster.home.workflow("r1"))
    assert (person.kind, person.sentence, person.node) == (waits.APPROVAL, "an approval before parade", "r1.approve-parade")
    begin(cluster, drill, "r2")
    until(lambda: cluster.home.workflow("r2").status.phase == "Pending", "the second run to wait")
    (lock,) = waits.find_waits(cluster.home, cluster.home.workflow("r2"))
    space = cluster.where.namespace
    assert (lock.kind, lock.sentence) == (waits.LOCK, f"lock {space}/Mutex/target-three-hosts held by {space}/r1")
    second = Follower(cluster, "r2")
    cancellation.cancel(cluster.home, "r1", BY_ADA)
    second.await_approval()  # the lock was given on
    approve(cluster, "r2")
    assert_whole(cluster, second.await_end(), "r2")


def test_a_run_that_waits_for_its_lock_ends_at_once_when_cancelled(cluster: Lab, drill: Drill) -> None:
    """Argo would let one that is to stop wait for the lock, and then start its exit handler, which finds nothing to report."""
    cluster.stand_in()
    begin(cluster, drill, "r1")
    first = Follower(cluster, "r1")
    first.await_approval()
    begin(cluster, drill, "r2")
    until(lambda: cluster.home.workflow("r2").status.phase == "Pending", "the second run to wait")
    cancellation.cancel(cluster.home, "r2", BY_ADA)()
    last = Follower(cluster, "r2").await_end()
    assert (last.status.phase, last.spec.shutdown, dict(last.nodes())) == ("Failed", cancellation.TERMINATE, {})
    assert cancellation.end_message(last) == BY_ADA.sentence
    assert not (cluster.store / "runs/r2").exists()
    assert not cluster.home.workflow("r1").finished
    approve(cluster, "r1")
    assert_whole(cluster, first.await_end(), "r1")


def test_a_run_that_began_while_it_was_cancelled_still_reports(cluster: Lab, drill: Drill) -> None:
    """A cancellation written for a run that is still pending is not accepted once the run has begun."""
    begin(cluster, drill, "r1")
    seen = cluster.home.workflow("r1")
    cluster.stand_in()
    follower = Follower(cluster, "r1")
    follower.await_approval()
    assert not cancellation.send_patch(cluster.home, seen, cancellation.cancel_patch(seen, BY_ADA, now=False))
    assert cluster.home.workflow("r1").spec.shutdown == ""
    cancellation.cancel(cluster.home, "r1", BY_ADA)
    assert follower.await_end().spec.shutdown == cancellation.STOP
    assert (cluster.store / "runs/r1/seal.json").exists()


@pytest.mark.parametrize(("phase", "message"), [("Running", ""), ("Failed", "Stopped with strategy 'Stop'"), ("Succeeded", "")])
def test_a_run_that_was_through_when_it_was_cancelled_is_not_said_to_be(phase: str, message: str) -> None:
    """The word of who cancels may arrive while the exit handler of a run works, all of whose tasks have passed."""
    meta = {"name": "r1", "annotations": {"bringup/cancelled": canonical(BY_ADA).decode()}}
    run = decode_workflow(
        msgspec.json.encode({"metadata": meta, "spec": {"shutdown": "Stop"}, "status": {"phase": phase, "message": message}})
    )
    assert cancellation.end_message(run) == ("" if phase == "Succeeded" else BY_ADA.sentence)


def test_an_announcement_is_claimed_once(cluster: Lab) -> None:
    submission.submit(cluster.home, shell(cluster, "claimed", "true"))
    ours = [approval_patches.claim(cluster.where, "claimed")("claimed.approve-x") for _ in range(3)]
    assert ours == [True, False, False]
    assert approval_patches.claim(cluster.where, "claimed")("claimed.approve-y")


def test_status_that_cannot_be_read_is_said() -> None:
    with pytest.raises(UnreadableStatus, match="another algorithm than gzip"):
        decompress_nodes("KLUv/SAA")
    with pytest.raises(UnreadableStatus, match="cannot be read"):
        decompress_nodes("H4sIAAAA")
    offloaded = {"metadata": {"name": "x"}, "status": {"offloadNodeStatusVersion": "1"}}
    with pytest.raises(UnreadableStatus, match="nodeStatusOffLoad"):
        decode_workflow(msgspec.json.encode(offloaded)).nodes()
