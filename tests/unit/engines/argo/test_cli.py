"""The commands about a run on Argo that no other test reaches: resuming, cancelling, sweeping, and their refusals."""

import getpass
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from steps.clients.store import Store
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from steps.errors import Unreachable
from tests.unit import warm_commands
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import BY_ADA, Follower, begin, shell
from tests.unit.warm_commands import COMMAND
from workflows import examples
from workflows.engines import approval_announcer
from workflows.engines.argo import cancellation, installer, prerequisites, run_memory, submission
from workflows.engines.folders import StateFolder as Runs

Drill = Callable[..., Any]


@pytest.fixture
def bringup(cluster: Lab) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line with access to the home cluster."""
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}

    def call(*words: str, where: tuple[str, ...] | None = None) -> subprocess.CompletedProcess[str]:
        told = ("--namespace", cluster.where.namespace) if words[0] != "run" else ()
        return warm_commands.run([*words, *(told if where is None else where)], environment, cluster.folder)

    return call


def test_a_run_that_is_cancelled_while_it_waits_has_nothing_to_report(
    cluster: Lab, drill: Drill, bringup: Callable[..., Any]
) -> None:
    cluster.stand_in()
    begin(cluster, drill, "one")
    first = Follower(cluster, "one")
    first.await_approval()
    begin(cluster, drill, "two")
    until(lambda: cluster.home.workflow("two").status.phase == "Pending", "the second run to wait")
    assert bringup("cancel", "two").stdout == "two is being cancelled\n"
    Follower(cluster, "two").await_end()
    watched, swept = bringup("watch", "two"), bringup("sweep", "two")
    assert (watched.returncode, "it ended before its first task, so it has no report" in watched.stdout) == (65, True)
    assert (swept.returncode, swept.stdout) == (0, "two: it ended before its first task, so it has no report, nor holds a target\n")
    shown = bringup("status", "two").stdout
    assert (shown.count("not run"), "to come" in shown, "cancelled by" in shown) == (2, False, True), shown
    cancellation.cancel(cluster.home, "one", BY_ADA)
    first.await_end()


def test_cancel_sweep_and_resume(cluster: Lab, drill: Drill, bringup: Callable[..., Any]) -> None:
    cluster.stand_in()
    begin(cluster, drill, "one")
    first = Follower(cluster, "one")
    first.await_approval()
    assert "waits for an approval before parade since" in bringup("status").stdout  # the newest run, nothing else named
    assert "only a run that has ended is swept" in bringup("sweep", "one").stderr
    shutil.rmtree(cluster.folder / "runs/store")  # as on a machine that has not followed it
    refused = bringup("report", "one", "--out", f"{cluster.folder}/out/", where=())
    assert (refused.returncode, "has no seal.json" in refused.stderr) == (64, True), refused.stderr
    nobody = bringup("approve", "one", "--as", "ada", "--stage", "drill")
    assert (nobody.returncode, "name one with --stage" in nobody.stderr) == (64, True), nobody.stderr
    assert "one is being cancelled" in bringup("cancel", "one", "--now").stdout
    me = getpass.getuser()
    assert f"cancelled by {me} (bringup cancel)" in bringup("status", "one").stdout
    first.await_end()
    late = bringup("approve", "one", "--as", "ada")
    assert (late.returncode, late.stdout, "waits for no approval" in late.stderr) == (64, "", True)
    ended = bringup("watch", "one")
    assert (ended.returncode, "bringup sweep one" in ended.stdout) == (65, True)
    assert "one was swept: reported, sealed, its target given back" in bringup("sweep", "one").stdout
    assert "one was reported and sealed already" in bringup("sweep", "one").stdout
    kept = json.loads((cluster.store / "runs/one/cancelled.json").read_bytes())
    assert (kept["who"], kept["how"]) == (me, "bringup cancel")
    assert f"cancelled by {me}" in bringup("report", "one", where=()).stdout

    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    said = cluster.folder / "said"
    with said.open("w") as out:
        again = subprocess.Popen([str(COMMAND), "resume", "one"], env=environment, stdout=out, stderr=out)
    until(lambda: "waits for an approval" in said.read_text() or again.poll() is not None, "the approval of the new run", 60)
    found = re.search(r"run (bringup-three-hosts-\S+): goes on where one ended", said.read_text())
    assert found, said.read_text()
    unseen = bringup("approve", found[1], "--as", "ada")
    assert (unseen.returncode, "shown none of it yet: drill in bringup-three-hosts-" in unseen.stderr) == (64, True), unseen.stderr
    digest = re.search("--evidence (sha256:[0-9a-f]{64})$", unseen.stderr.strip())
    assert digest, unseen.stderr
    given = bringup("approve", found[1], "--as", "ada", "--evidence", digest[1])
    assert given.returncode == 0, given.stderr
    assert re.search(f"^approved drill in {found[1]} as ada, evidence sha256:[0-9a-f]{{64}}; parade starts$", given.stdout.strip())
    assert again.wait(60) == 0, said.read_text()
    workflow = cluster.home.workflow(found[1])
    assert workflow.metadata.labels["bringup/cluster"] == "three-hosts"
    assert b'"value":"one"' in cluster.home.raw_workflow(found[1]).replace(b": ", b":")


def test_a_run_that_argo_itself_submitted_is_one_of_ours(cluster: Lab, drill: Drill, bringup: Callable[..., Any]) -> None:
    """As `argo submit --from workflowtemplate/NAME` makes it: a reference and nothing else."""
    cluster.stand_in()
    plan, bundle = drill(cluster.where.namespace, cluster.target)
    installer.install(cluster.home, plan, bundle, prerequisites.collect_secrets(cluster.home, plan, Path("/"), {}))
    meta = {"name": "by-hand", "namespace": cluster.where.namespace}
    spec = {"workflowTemplateRef": {"name": bundle.template["metadata"]["name"]}}
    made = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": meta, "spec": spec}
    cluster.home.ask(lambda kube: kube.create(made))
    Follower(cluster, "by-hand").await_approval()
    newest = bringup("status")
    assert newest.stdout.startswith("run by-hand: Running"), newest.stderr
    seen = cluster.home.workflow("by-hand").metadata
    assert seen.labels["bringup/cluster"] == plan.name
    assert seen.annotations["bringup/plan"] == plan.digest
    assert bringup("cancel", "by-hand", "--now").returncode == 0
    until(lambda: cluster.home.workflow("by-hand").finished, "the end of the run", 60)
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    with subprocess.Popen([str(COMMAND), "resume", "by-hand"], env=environment, stdout=subprocess.PIPE, text=True) as again:
        try:
            assert again.stdout is not None
            assert again.stdout.readline().startswith(f"run bringup-{plan.name}-20")
        finally:
            again.kill()


def test_refusals_before_anything_is_written(cluster: Lab, bringup: Callable[..., Any]) -> None:
    deployment = f"/apis/apps/v1/namespaces/{cluster.where.namespace}/deployments/workflow-controller"
    cluster.home.ask(lambda kube: kube.delete(deployment))
    cluster.deploy("quay.io/argoproj/workflow-controller:v3.7.14")
    space = ("--engine", "argo", "--namespace", cluster.where.namespace)
    old = bringup("run", "single-node", *space)
    assert (old.returncode, "v3.7.14; Argo Workflows 4.1.2 or newer is needed" in old.stderr) == (64, True), old.stderr
    secret = bringup("run", "single-node", *space, "--argo-version", "4.1.2")
    assert (secret.returncode, "secret known_hosts" in secret.stderr) == (64, True), secret.stderr
    assert b'"items":[]' in cluster.home.fetch(cluster.home.workflows()).replace(b" ", b"")
    assert "--no-wait is for --engine argo" in bringup("run", "single-node", "--no-wait").stderr
    assert "engine 'jenkins' is unknown" in bringup("run", "single-node", "--engine", "jenkins").stderr
    nobody = bringup("status", "nobody")
    assert (nobody.returncode, "has no Workflow nobody" in nobody.stderr) == (64, True)


def test_what_cannot_be_reused_is_not_submitted(cluster: Lab, bringup: Callable[..., Any]) -> None:
    own_spec(cluster)
    meta = {"name": "theirs", "labels": {"bringup/cluster": "another"}, "annotations": {"bringup/submission": "x"}}
    spec = {"entrypoint": "x", "templates": [{"name": "x", "suspend": {}}]}
    submission.submit(
        cluster.home,
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {**meta, "namespace": cluster.where.namespace},
            "spec": spec,
        },
    )
    words = ("run", "small.yaml", "--engine", "argo", "--namespace", cluster.where.namespace, "--no-wait", "--reuse")
    wrong = bringup(*words, "no/such run {{x}}")
    assert (wrong.returncode, "'no/such run {{x}}' cannot be the name of a run" in wrong.stderr) == (64, True), wrong.stderr
    other = bringup(*words, "theirs")
    assert (other.returncode, "theirs was about cluster another, this one is about single-node" in other.stderr) == (64, True)
    assert len(json.loads(cluster.home.fetch(cluster.home.workflows()))["items"]) == 1
    gone = bringup(*words, "three-hosts-20261121-101500-3f2a")  # a Workflow may be deleted while its evidence stays
    assert (gone.returncode, "the run itself looks for what it proved" in gone.stdout) == (0, True), gone.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_who_stops_following_leaves_the_run_alone(
    cluster: Lab, drill: Drill, bringup: Callable[..., Any], number: signal.Signals
) -> None:
    cluster.stand_in()
    begin(cluster, drill, "one")
    Follower(cluster, "one").await_approval()
    assert bringup("status", "one").returncode == 0
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    said = cluster.folder / "said"
    with said.open("w") as out:
        following = subprocess.Popen([str(COMMAND), "watch", "one"], env=environment, stdout=out, stderr=out)
    where = f"--engine argo --namespace {cluster.where.namespace}"
    until(lambda: f"parade: waits for an approval (bringup approve one --as NAME {where})" in said.read_text(), "the approval", 60)
    following.send_signal(number)
    assert following.wait(30) == 130
    assert "run one goes on in the home cluster; follow it again: bringup watch one" in said.read_text()
    assert not cluster.home.workflow("one").finished


def test_a_name_of_somebody_elses_workflow(cluster: Lab, bringup: Callable[..., Any]) -> None:
    """A Workflow that is not ours has no tasks of ours: a sentence, no traceback."""
    manifest = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "theirs", "namespace": cluster.where.namespace, "annotations": {"bringup/submission": "x"}},
        "spec": {"entrypoint": "x", "templates": [{"name": "x", "suspend": {}}]},
    }
    submission.submit(cluster.home, manifest)
    answer = bringup("status", "theirs")
    assert (answer.returncode, "Traceback" in answer.stderr) == (64, False), answer.stderr
    assert "is not a run of bringup" in answer.stderr


def test_what_is_shown_again_can_be_approved(cluster: Lab, drill: Drill, bringup: Callable[..., Any]) -> None:
    """Evidence that changes after it was shown is refused until `status` has shown it anew; half-learnt tasks are learnt again."""
    cluster.stand_in()
    begin(cluster, drill, "one")
    Follower(cluster, "one").await_approval()
    first = json.loads(bringup("status", "one", "-o", "json").stdout)["waiting"][0]["evidence"]
    store = Store(cluster.store)
    store.write("runs/one/evidence/drill/apply/0000/02.json", store.read("runs/one/evidence/drill/apply/0000/01.json") or b"")
    refused = bringup("approve", "one", "--as", "ada", where=())
    assert (refused.returncode, f"was {first} when it was shown" in refused.stderr) == (64, True), refused.stderr
    assert "bringup status" in refused.stderr
    tasks = cluster.folder / "runs/inputs/one/tasks"
    (tasks / "plan.json").unlink()  # as of a command that was ended while it learnt them
    again = json.loads(bringup("status", "one", "-o", "json", where=()).stdout)["waiting"][0]["evidence"]
    assert again != first
    assert [path.name for path in tasks.parent.iterdir()] == ["tasks"]
    given = bringup("approve", "one", "--as", "ada", where=())
    assert (given.returncode, f"evidence {again}; parade starts" in given.stdout) == (0, True), given.stderr


def ended(cluster: Lab, run: str, phase: str) -> None:
    """Play the controller: the run is over."""
    status = {"phase": phase, "startedAt": "2026-11-21T12:00:00Z", "finishedAt": "2026-11-21T12:01:00Z"}
    cluster.home.ask(lambda kube: kube.merge(cluster.home.workflows(run), {"status": status}))


def test_a_vouched_version_lasts_and_nothing_is_temporary_after_a_submission(
    emulated: Lab, drill: Drill, bringup: Callable[..., Any]
) -> None:
    cluster = emulated
    begin(cluster, drill, "one")
    ended(cluster, "one", "Failed")
    cluster.home.ask(
        lambda kube: kube.delete(f"/apis/apps/v1/namespaces/{cluster.where.namespace}/deployments/workflow-controller")
    )
    unknown = bringup("resume", "one")
    assert (unknown.returncode, "pass --argo-version VERSION" in unknown.stderr) == (64, True), unknown.stderr
    vouched = ("--argo-version", "4.1.2")
    code, name, _ = unread(cluster, "resume", "one", *vouched)
    assert code == ExitCode.GATE_FAILED
    memory = run_memory.read(Runs(cluster.folder / "runs").run(name))
    assert memory is not None
    assert memory.version == "4.1.2"
    code, _, said = unread(cluster, "resume", name)
    assert (code, f"goes on where {name} ended" in said) == (ExitCode.GATE_FAILED, True), said


OPENED = {
    "one-1": {"id": "one-1", "name": "one.open", "type": "Pod", "templateName": "run-open", "phase": "Succeeded", "children": []}
}
BEFORE = "run one never reached its cluster: nothing of it is reused"


@pytest.mark.parametrize(
    ("nodes", "reuse", "said"), [(OPENED, "one", "what that proved"), ({}, "none", "which was before it began")]
)
def test_a_run_that_failed_before_it_reached_its_cluster_is_resumed(
    emulated: Lab, drill: Drill, bringup: Callable[..., Any], nodes: dict[str, Any], reuse: str, said: str
) -> None:
    """A new run begins at the first stage, whether the old run failed in that stage or its first pod never started."""
    cluster = emulated
    begin(cluster, drill, "one")
    if nodes:
        header = run_records.Header(run="one", engine="argo", plan="sha256:p", cluster="three-hosts", owner="o", revision="1")
        Store(cluster.store).write(run_records.header_key("one"), canonical(header))
    cluster.home.ask(lambda kube: kube.merge(cluster.home.workflows("one"), {"status": {"nodes": nodes}}))
    ended(cluster, "one", "Failed")
    cluster.stand_in()
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    told_to = cluster.folder / "said"
    with told_to.open("w") as out:
        words = [str(COMMAND), "resume", "one", "--namespace", cluster.where.namespace]
        again = subprocess.Popen(words, env=environment, stdout=out, stderr=out)
    until(lambda: "waits for an approval" in told_to.read_text() or again.poll() is not None, "the second stage", 60)
    name = re.match(rf"run (bringup-three-hosts-\S+): goes on where one ended.* {said}", told_to.read_text())
    assert name, told_to.read_text()
    assert cluster.home.workflow(name[1]).argument("reuse") == reuse
    assert re.search(r"^drill: pass", told_to.read_text(), re.MULTILINE), told_to.read_text()
    (record,) = Store(cluster.store).records(name[1], "run", "open")
    assert record.observation.get("reuse", "") == (BEFORE if nodes else "")
    assert bringup("cancel", name[1], "--now").returncode == 0
    assert again.wait(60) == ExitCode.GATE_FAILED


def unread(cluster: Lab, *words: str, phase: str = "Succeeded") -> tuple[int, str, str]:
    """A command whose run ends so, but whose evidence cannot be read: its code, the run and what it printed."""
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    said = cluster.folder / "said"
    with said.open("w") as out:
        process = subprocess.Popen([str(COMMAND), *words], env=environment, stdout=out, stderr=out, cwd=cluster.folder)
    try:
        found = until(lambda: re.search(r"run (bringup-(three-hosts|single-node)-\S+): ", said.read_text()), "the new run", 60)
        ended(cluster, found[1], phase)
        pods = cluster.home.core("pods")
        reader = until(lambda: json.loads(cluster.home.fetch(pods))["items"], "the pod that reads the store", 60)[0]["metadata"]
        cluster.home.ask(lambda kube: kube.delete(f"{pods}/{reader['name']}"))
        code = process.wait(60)
    finally:
        process.kill()
        process.wait()
    assert f"try again: bringup watch {found[1]}" in said.read_text()
    return code, found[1], said.read_text()


def test_a_run_without_evidence_keeps_its_code(emulated: Lab) -> None:
    """With --junit too, whose file then says that there is no report."""
    own_spec(emulated)
    words = ("run", "small.yaml", "--engine", "argo", "--namespace", emulated.where.namespace, "--junit", "junit.xml")
    code, name, said = unread(emulated, *words, phase="Error")
    assert (code, "junit.xml says only that there is no report" in said) == (ExitCode.BUG, True), said
    suites = ElementTree.fromstring((emulated.folder / "junit.xml").read_bytes())
    (case,) = suites.iter("testcase")
    failure = case.find("failure")
    assert failure is not None
    assert f"run {name} is on Argo" in failure.attrib["message"]


def unfinished(cluster: Lab, run: str) -> None:
    """Check that the JUnit report of a run that goes on holds one error, which says how to follow the run, and no failure."""
    suites = ElementTree.fromstring((cluster.folder / "junit.xml").read_bytes())
    (suite,) = suites.iter("testsuite")
    assert [suite.get(count) for count in ("tests", "errors", "failures", "skipped")] == ["1", "1", "0", "0"]
    (error,) = suites.iter("error")
    assert error.attrib["type"] == "unfinished"
    assert f"not finished: run {run} goes on; follow it: bringup watch {run} --home-kube" in error.attrib["message"]


def test_a_run_that_is_not_waited_for_is_not_finished_to_ci(cluster: Lab, bringup: Callable[..., Any]) -> None:
    own_spec(cluster)
    words = ("run", "small.yaml", "--engine", "argo", "--namespace", cluster.where.namespace, "--no-wait", "--junit")
    done = bringup(*words, "junit.xml")
    found = re.search(r"run (bringup-single-node-\S+): 1 host", done.stdout)
    assert found, done.stderr
    assert done.returncode == 0
    unfinished(cluster, found[1])
    nowhere = bringup(*words, "no/such/folder/junit.xml")
    assert (nowhere.returncode, nowhere.stdout) == (ExitCode.USAGE, ""), "it is refused before there is a run"
    assert nowhere.stderr == (
        "error: no/such/folder/junit.xml: No such file or directory\nhint: its folder is not there: make it, or name another path\n"
    )


def test_a_follower_that_is_killed_leaves_an_unfinished_report(cluster: Lab) -> None:
    """As when a CI server's job runs into its time limit; the end of a run would have replaced it."""
    own_spec(cluster)
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    words = ("run", "small.yaml", "--engine", "argo", "--namespace", cluster.where.namespace, "--junit", "junit.xml")
    with subprocess.Popen([str(COMMAND), *words], env=environment, cwd=cluster.folder, stdout=subprocess.DEVNULL) as following:
        try:
            report = cluster.folder / "junit.xml"
            until(lambda: report.exists() and "goes on" in report.read_text(), "the report of a run", 60)
        finally:
            following.kill()
    (newest,) = json.loads(cluster.home.fetch(cluster.home.workflows()))["items"]
    unfinished(cluster, newest["metadata"]["name"])


def own_spec(cluster: Lab) -> None:
    """A spec with its secrets, as a person has them."""
    (cluster.folder / "small.yaml").write_text(examples.path("single-node").read_text() + "stages: [os_prep]\n")
    for name in ("id_ed25519", "known_hosts"):
        (cluster.folder / name).write_text("nobody needs it\n")


def test_a_run_that_cannot_be_remembered_is_still_named(cluster: Lab, bringup: Callable[..., Any]) -> None:
    """After the submission the command ends as no temporary trouble, and says how to follow the run."""
    own_spec(cluster)
    (cluster.folder / "runs").mkdir()
    (cluster.folder / "runs/engine").write_text("a file where the folder of runs should be\n")
    done = bringup("run", "small.yaml", "--engine", "argo", "--namespace", cluster.where.namespace, "--junit", "junit.xml")
    found = re.search(r"run (bringup-single-node-\S+): 1 host", done.stdout)
    assert found, done.stderr
    assert (done.returncode, f"follow it: bringup watch {found[1]} --home-kube" in done.stderr) == (ExitCode.GATE_FAILED, True), (
        done.stderr
    )
    unfinished(cluster, found[1])
    (cluster.folder / "runs/engine").unlink()
    told = done.stderr.partition("bringup watch ")[2].split()
    assert json.loads(bringup("status", *told, "-o", "json", where=()).stdout)["run"] == found[1]  # that finds it


def test_a_submission_that_may_have_arrived_is_not_temporary(emulated: Lab) -> None:
    cluster, path = emulated, emulated.home.workflows()
    failing = {"status": 503, "methods": ["POST", "GET"], "path_prefix": path}
    cluster.disturb(fail_next={**failing, "count": 10})
    with pytest.raises(submission.Unsure, match="cannot be told") as unsure:
        submission.submit(cluster.home, shell(cluster, "perhaps", "true"))
    assert (unsure.value.exit_code, "bringup watch perhaps" in unsure.value.hint) == (ExitCode.GATE_FAILED, True)
    cluster.disturb(fail_next={**failing, "methods": ["POST"], "count": 5})
    with pytest.raises(Unreachable):
        submission.submit(cluster.home, shell(cluster, "never", "true"))


def test_who_follows_later_announces(cluster: Lab, drill: Drill, bringup: Callable[..., Any]) -> None:
    """The command that submitted is gone: `watch` announces what waits, once."""
    cluster.stand_in()
    begin(cluster, drill, "one")
    heard = cluster.folder / "heard"
    telling = approval_announcer.AnnounceCommand(cluster="three-hosts", approvers=("ada",), command=("tee", "-a", str(heard)))
    run_memory.write(
        Runs(cluster.folder / "runs").run("one"), run_memory.RunMemory(where=cluster.where, telling={"parade": telling})
    )
    environment = {**os.environ, "BRINGUP_HOME": str(cluster.folder / "runs"), "KUBECONFIG": cluster.where.kubeconfig}
    quiet = subprocess.DEVNULL
    both = [subprocess.Popen([str(COMMAND), "watch", "one"], env=environment, stdout=quiet, stderr=quiet) for _ in "ab"]
    until(lambda: heard.exists() and heard.read_text().endswith("}"), "the announcement", 60)
    shown = bringup("status", "one", where=())
    told = json.loads(heard.read_text())
    assert told["how"] == f"bringup approve one --as NAME --engine argo --namespace {cluster.where.namespace}"
    assert re.search("^  it is about drill in one: pass: .*; evidence sha256:[0-9a-f]{64}$", shown.stdout, re.MULTILINE)
    assert bringup("approve", "one", "--as", "ada", where=()).returncode == 0  # on what was just shown here
    assert [one.wait(60) for one in both] == [0, 0]
    told = json.loads(heard.read_text())  # one message, though two followed
    assert (told["run"], told["stage"], told["approvers"]) == ("one", "parade", ["ada"])
