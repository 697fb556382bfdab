"""Results of an earlier run are reused only for the same cluster, and measurements only if all stages below are unchanged."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from steps.clients.kube.client import Kube
from steps.contract import run_records
from steps.contract.canonical import canonical
from steps.contract.runs import evidence, quarantine
from steps.contract.task import Task, Verb
from steps.contract.verdict import FailureClass, NodeVerdict, Status, Verdict, failed, passed
from steps.errors import BadTask
from steps.verbs import job, open

CHECK = Task(
    stage="rke2",
    name="functional",
    verb=Verb.JOB,
    arguments={"gate": "rke2/functional", "objects": [], "checks": ["dns"], "select": "gpu"},
    deadline_seconds=0,
)
GPUS = ("gpu1", "gpu2", "gpu3")


class Runs:
    """Writes what runs left in the store."""

    def __init__(self, desk: Any, uid: str) -> None:
        self.desk, self.uid = desk, uid

    def header(self, run: str, **fields: Any) -> None:
        told = {"run": run, "engine": "local", "plan": "sha256:p", "cluster": "c", "owner": "o", "revision": "1"}
        self.desk.store.replace(
            run_records.header_key(run), canonical(run_records.Header(**{**told, "target_uid": self.uid, **fields}))
        )
        self.desk.store.replace(run_records.hosts_key(run), canonical(list(self.desk.context(CHECK).fleet.hosts())))

    def record(self, run: str, stage: str, task: str, verb: str, verdict: Verdict | None = None, **fields: Any) -> None:
        at = 100.0 if run == "old" else 900.0
        told: dict[str, Any] = {"shard": 0, "attempt": 1, "input_digest": "sha256:0", "engine": "local"}
        told |= {"started": at, "finished": at, "verdict": verdict or passed(f"{stage}/{task}", "as it was")}
        record = evidence.Evidence(run=run, stage=stage, task=task, verb=verb, **{**told, **fields})
        self.desk.store.write_evidence(record, canonical)

    def proven(self, run: str, stage: str, **applied: Any) -> None:
        """A stage whose objects were applied, whose gate looked, and which its judge passed."""
        self.record(run, stage, "apply", "apply", **applied)
        self.record(run, stage, "control", "wait")
        self.record(run, stage, "judge", "judge")

    def retried(self, run: str, stage: str) -> None:
        """A stage that found everything in place after an attempt that broke off."""
        away = failed(f"{stage}/apply", FailureClass.RUNTIME, seen="no answer", expected="one", next_step="wait")
        self.record(run, stage, "apply", "apply", away, error="away")
        self.proven(run, stage, reused="old")

    def measured(self, run: str, nodes: tuple[str, ...] = GPUS, **fields: Any) -> None:
        """A pass of the check, and its stage passed."""
        rows = [NodeVerdict(node=node, status=Status.PASS) for node in nodes]
        verdict = passed("rke2/functional", "fast enough", rows)
        at = {"started": 200.0, "finished": 210.0, "input_digest": CHECK.input_digest}
        self.record(run, "rke2", "functional", "job", verdict, **at, **fields)
        self.record(run, "rke2", "judge", "judge", started=220.0, finished=220.0)


@pytest.fixture
def runs(desk: Any, api: Any) -> Runs:
    """An earlier run that proved stage base_services and measured; a run that found base_services as it was."""
    made = Runs(desk, api.uid)
    desk.environment["BRINGUP_REUSE"] = "old"
    made.header("old")
    made.proven("old", "base_services")
    made.measured("old")
    made.header("r1")
    made.proven("r1", "base_services", reused="old")
    return made


def outcome(desk: Any) -> Verdict:
    """Run the check; what it is decided by."""
    assert job.run(desk.context(CHECK)) == 0
    found = desk.record("rke2", "functional")
    assert bool(found.reused) == found.verdict.is_pass
    return found.verdict  # type: ignore[no-any-return]


def test_a_measurement_is_taken_where_all_below_it_is_as_it_was(desk: Any, runs: Runs) -> None:
    verdict = outcome(desk)
    assert verdict.is_pass
    assert verdict.reason == "unchanged since run old: fast enough"
    assert [row.node for row in verdict.nodes] == list(GPUS)


BREAKS: dict[str, tuple[Callable[[Runs], None], str]] = {
    "a stage below was upgraded": (lambda r: r.record("r1", "gpu_operator", "apply", "apply"), "gpu_operator.apply was applied"),
    "its own stage was upgraded": (lambda r: r.record("r1", "rke2", "apply", "apply"), "rke2.apply was applied"),
    "an attempt may have changed something": (lambda r: r.retried("r1", "gang"), "gang.apply was applied"),
    "a play changed a host": (
        lambda r: r.record("r1", "os_prep", "play", "play", changes=("gpu1: 3 changes",)),
        "os_prep.play changed hosts",
    ),
    "a stage below is not proven": (lambda r: r.record("r1", "gang", "control", "wait"), "stage gang was not proven again"),
    "a stage below is proven without a look": (
        lambda r: r.record("r1", "gang", "judge", "judge"),
        "stage gang was not proven again",
    ),
    "a stage of the earlier run is not there": (lambda r: r.proven("old", "sharing"), "does not have sharing"),
    "the run was narrowed": (lambda r: r.header("r1", left_out=("gpu_operator",)), "leaves out gpu_operator"),
}


@pytest.mark.parametrize("name", BREAKS)
def test_a_measurement_is_made_again_where(desk: Any, runs: Runs, name: str) -> None:
    change, said = BREAKS[name]
    change(runs)
    verdict = outcome(desk)
    assert not verdict.is_pass
    assert said in "; ".join(verdict.notes)


def test_a_measurement_of_other_nodes_is_made_again(desk: Any, runs: Runs) -> None:
    runs.measured("old", nodes=GPUS[:2])
    assert "measured other nodes: gpu3" in outcome(desk).notes[-1]


@pytest.mark.parametrize("then", [GPUS, GPUS[:2]])
def test_a_measurement_of_nodes_together_holds_for_the_same_nodes_only(desk: Any, runs: Runs, then: tuple[str, ...]) -> None:
    runs.measured("old", nodes=())
    entries = tuple(quarantine.QuarantineEntry(node=node, stage="gang", gate="g", reason="r") for node in GPUS if node not in then)
    desk.store.replace(quarantine.key("old", "gang"), quarantine.encode(entries))
    assert outcome(desk).is_pass is (then == GPUS)


def test_a_measurement_is_made_again_where_no_gate_of_this_run_looks(desk: Any, api: Any) -> None:
    runs = Runs(desk, api.uid)
    desk.environment["BRINGUP_REUSE"] = "old"
    runs.header("old")
    runs.measured("old")
    runs.header("r1")
    assert outcome(desk).notes[-1].endswith("no gate of this run has looked at the cluster")


STRANGERS: dict[str, dict[str, Any]] = {
    "another cluster": {"cluster": "d"},
    "another target": {"target_uid": "33333333-3333-4333-8333-333333333333"},
    "a rehearsal": {"simulated": True},
}


@pytest.mark.parametrize("name", STRANGERS)
def test_a_run_about_something_else_is_never_taken(desk: Any, runs: Runs, name: str) -> None:
    runs.header("old", **STRANGERS[name])
    assert not outcome(desk).is_pass
    with pytest.raises(BadTask, match="nothing of it can be reused"):
        open.run(desk.context(opening(runs.uid)))


def test_a_run_that_never_reached_its_cluster_leaves_nothing_to_reuse_and_is_no_obstacle(desk: Any, runs: Runs) -> None:
    runs.header("old", target_uid="")
    assert not outcome(desk).is_pass
    assert open.run(desk.context(opening(runs.uid))) == 0
    assert desk.record("run", "open").observation["reuse"] == "run old never reached its cluster: nothing of it is reused"


def test_an_unknown_earlier_run_ends_the_start_with_64(desk: Any, runs: Runs) -> None:
    desk.environment["BRINGUP_REUSE"] = "nobody-knows"
    done = desk.run(opening(runs.uid))
    assert done.returncode == 64
    assert "there is no run nobody-knows to reuse" in done.stderr


def test_a_run_does_not_reuse_itself(desk: Any, runs: Runs) -> None:
    desk.environment["BRINGUP_REUSE"] = "r1"
    with pytest.raises(BadTask, match="cannot reuse itself"):
        open.run(desk.context(opening(runs.uid)))


def test_an_earlier_run_of_the_same_cluster_is_welcome(desk: Any, runs: Runs) -> None:
    assert open.run(desk.context(opening(runs.uid))) == 0


def test_what_is_applied_without_a_gate_is_reused_where_it_is_found_unchanged(desk: Any, runs: Runs) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y"}}
    task = Task(stage="base_services", name="delivery_settings", verb=Verb.APPLY, arguments={"objects": [body]})
    runs.record("old", "base_services", task.name, "apply", input_digest=task.input_digest)
    found = []
    for _ in range(2):
        assert desk.run(task).returncode == 0
        record = desk.record("base_services", task.name)
        found.append((record.changes, record.reused))
    assert found == [(("created ConfigMap default/a",), ""), (("unchanged ConfigMap default/a",), "old")]


@pytest.mark.parametrize("labels", [{}, {"k": "v"}], ids=["object", "label"])
def test_what_somebody_changed_since_is_applied_again_though_its_gate_passes(
    desk: Any, runs: Runs, api: Any, labels: dict[str, str]
) -> None:
    """Gates do not compare every field of every object, nor every label, with the plan."""
    kube = Kube.from_file(desk.root / "secrets" / "kubeconfig")
    kube.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1"}})
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"x": "y"}}
    arguments = {"objects": [body], "node_labels": labels, "gate": "gang/control"}
    task = Task(stage="base_services", name="apply", verb=Verb.APPLY, arguments=arguments)
    runs.record("old", "base_services", task.name, "apply", input_digest=task.input_digest)
    records = []
    for by_hand in (False, False, True):
        if by_hand and labels:
            kube.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu1", "labels": {"k": "w"}}}, force=True)
        elif by_hand:
            kube.delete("/api/v1/namespaces/default/configmaps/a")
        assert desk.run(task).returncode == 0
        records.append(desk.record("base_services", task.name))
    assert [bool(record.reused) for record in records] == [False, True, False]
    assert any(change.startswith(("created", "changed")) for change in records[2].changes)


def opening(uid: str) -> Task:
    told = {"plan": "sha256:p", "cluster": "c", "owner": "o", "revision": "1", "target_uid": uid}
    return msgspec.structs.replace(CHECK, stage="run", name="open", verb=Verb.OPEN, arguments=told)
