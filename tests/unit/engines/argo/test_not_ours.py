"""Every command about a run, on a Workflow that is none of ours, on one whose template was deleted, and on no Workflow at all."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from steps.contract.exit import ExitCode
from tests.unit.engines.argo.lab import Lab, until
from tests.unit.engines.argo.test_follow import Follower, approve, begin
from workflows.cli import main
from workflows.engines.argo import cancellation, submission
from workflows.engines.argo.home import NotOurs
from workflows.engines.argo.workflow_objects import API
from workflows.engines.folders import StateFolder as Runs

Drill = Callable[..., Any]
COMMANDS = {
    "cancel": ("cancel", "RUN"),
    "resume": ("resume", "RUN"),
    "logs": ("logs", "drill", "--run", "RUN"),
    "pull": ("pull", "RUN"),
    "sweep": ("sweep", "RUN"),
    "status": ("status", "RUN"),
    "approve": ("approve", "RUN", "--as", "ada"),
    "watch": ("watch", "RUN"),
}


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture
def call(cluster: Lab, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """One command from a machine (`runs`); `named`: it says where the run is, else the machine knows."""

    def made(command: str, run: str, *, runs: str = "runs", named: bool = True) -> Done:
        monkeypatch.setenv("BRINGUP_HOME", str(cluster.folder / runs))
        monkeypatch.setenv("KUBECONFIG", cluster.where.kubeconfig)
        words = [run if word == "RUN" else word for word in COMMANDS[command]]
        code = main.run([*words, *(["--namespace", cluster.where.namespace] if named else [])])
        return Done(code, *capsys.readouterr())

    return made


def refused(done: Done, *said: str) -> None:
    """One sentence and one hint, on stderr, with the exit code of a wrong use."""
    assert (done.code, done.out) == (ExitCode.USAGE, ""), done.out + done.err
    lines = done.err.strip().splitlines()
    assert [line.split(":")[0] for line in lines] == ["error", "hint"], done.err
    assert all(one in done.err for one in said), done.err


def theirs(cluster: Lab, name: str, **spec: Any) -> None:
    """A Workflow of somebody else."""
    meta = {"name": name, "namespace": cluster.where.namespace, "annotations": {"bringup/submission": "x"}}
    submission.submit(cluster.home, {"apiVersion": API, "kind": "Workflow", "metadata": meta, "spec": spec})


def shutdown(cluster: Lab, run: str) -> str:
    return cluster.home.workflow(run).spec.shutdown


@pytest.mark.parametrize("kind", ["template", "plain", "nobody"])
def test_a_workflow_that_is_none_of_ours(cluster: Lab, call: Call, kind: str) -> None:
    step = {"entrypoint": "x", "templates": [{"name": "x", "suspend": {}}]}
    if kind == "plain":
        theirs(cluster, "plain", **step)
    elif kind == "template":
        meta = {"name": "shared", "namespace": cluster.where.namespace}
        cluster.create({"apiVersion": API, "kind": "WorkflowTemplate", "metadata": meta, "spec": step})
        theirs(cluster, "template", workflowTemplateRef={"name": "shared"})
    wanted = {
        "plain": f"Workflow plain in namespace {cluster.where.namespace} is not a run of bringup: it has no WorkflowTemplate",
        "template": f"Workflow template in namespace {cluster.where.namespace} is not a run of bringup: its WorkflowTemplate",
        "nobody": f"namespace {cluster.where.namespace} of the home cluster has no Workflow nobody",
    }[kind]
    for command in COMMANDS:
        refused(call(command, kind), wanted, "finished Workflow" if kind == "nobody" else "-l bringup/pipeline")
    if kind != "nobody":
        assert shutdown(cluster, kind) == ""
    assert not Runs(cluster.folder / "runs").runs()  # none of them is remembered as a run


def test_a_name_that_this_machine_does_not_know(call: Call) -> None:
    for command in COMMANDS:
        refused(call(command, "nobody", named=False), "no run 'nobody'", "BRINGUP_HOME")


def test_a_run_whose_template_was_deleted(cluster: Lab, drill: Drill, call: Call) -> None:
    """From another machine nothing can be known of it; this one knows its tasks, so it is shown, followed and ended."""
    cluster.stand_in()
    begin(cluster, drill, "one")
    follower = Follower(cluster, "one")
    follower.await_approval()
    assert call("status", "one").code == 0
    name = cluster.home.workflow("one").template
    cluster.home.ask(lambda kube: kube.delete(f"/apis/{API}/namespaces/{cluster.where.namespace}/workflowtemplates/{name}"))
    gone = f"namespace {cluster.where.namespace} of the home cluster has no WorkflowTemplate {name} any more"
    for command in COMMANDS:
        refused(call(command, "one", runs="elsewhere"), gone, "bringup render SPEC --out FOLDER")
    for command in ("pull", "approve"):
        refused(call(command, "one"), gone, "bringup render SPEC --out FOLDER")
    shown = call("status", "one")
    assert (shown.code, gone in shown.out) == (0, True), shown.err
    assert "waits for an approval before parade" in shown.out

    approve(cluster, "one")
    until(lambda: follower.last is not None, "the end of the run", 60)
    watched = call("watch", "one")
    assert (watched.code, gone in watched.out) == (ExitCode.TEMPORARY, True), watched.out + watched.err
    for command in ("resume", "sweep"):
        refused(call(command, "one"), gone, "bringup render SPEC --out FOLDER")


def test_cancelling_tells_the_run_though_its_template_is_gone(cluster: Lab, drill: Drill, call: Call) -> None:
    cluster.stand_in()
    begin(cluster, drill, "one")
    Follower(cluster, "one").await_approval()
    assert call("status", "one").code == 0
    name = cluster.home.workflow("one").template
    cluster.home.ask(lambda kube: kube.delete(f"/apis/{API}/namespaces/{cluster.where.namespace}/workflowtemplates/{name}"))
    done = call("cancel", "one")
    assert (done.code, "warning: the Workflow says who cancelled it" in done.out) == (0, True), done.err
    assert shutdown(cluster, "one") == cancellation.STOP


def test_a_name_that_somebody_else_has_taken(cluster: Lab, drill: Drill, call: Call) -> None:
    """Commands about a run that is gone, whose name a foreign Workflow has taken, are refused and end nothing."""
    cluster.stand_in()
    begin(cluster, drill, "one")
    Follower(cluster, "one").await_approval()
    assert call("status", "one").code == 0
    cluster.home.ask(lambda kube: kube.delete(cluster.home.workflows("one")))
    theirs(cluster, "one", entrypoint="x", templates=[{"name": "x", "suspend": {}}])
    for command in COMMANDS.keys() - {"watch"}:
        refused(call(command, "one"), "is not a run of bringup: it has no WorkflowTemplate")
    assert shutdown(cluster, "one") == ""
    with pytest.raises(NotOurs):
        cancellation.cancel(cluster.home, "one", cancellation.Cancelled(who="ada", how="bringup cancel", when=1.0))
