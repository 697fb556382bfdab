"""Failed attempts that are retried because the task did not do it: one rule in Python and in Argo's language."""

import json
from pathlib import Path

import pytest

from steps.contract.exit import ExitCode
from steps.contract.runs.lost_attempts import EXPRESSION, is_lost
from workflows import bringup, examples
from workflows.engines.attempt_history import lost_attempts
from workflows.engines.folders import StateFolder
from workflows.engines.local.result import RunNodeStatus
from workflows.engines.local.substitution import boolean
from workflows.plan.compiler import compile_plan
from workflows.render.bundle import render
from workflows.spec import load

LOST = [
    ("Error", -1, "pod deleted"),
    ("Error", 0, "wait: Error (exit code 1): no route to host"),
    ("Failed", -1, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi."),
    ("Failed", 137, "The node was low on resource: ephemeral-storage. Container main was using 2Gi, request is 0."),
    ("Failed", -1, "The node had condition: [DiskPressure]. "),
    ("Failed", -1, "Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 3950, capacity: 4000"),
    ("Failed", -1, "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"),
    ("Failed", -1, "Pod was rejected: Allocate failed due to no healthy devices present, which is unexpected"),
    ("Failed", -1, "Pod was rejected: Pod was rejected as the node is shutting down."),
    ("Failed", 143, "Pod was terminated in response to imminent node shutdown."),
    ("Failed", -1, "Preempted in order to admit critical pod"),
    ("Failed", -1, "pod failed: neither main nor wait container completed successfully"),
    ("Failed", 0, "pod failed: wait container did not complete successfully"),
    ("Failed", 255, "main: Unknown (exit code 255)"),
    ("Failed", 137, "main: ContainerStatusUnknown (exit code 137): The container could not be located when the pod was terminated"),
]
OWN = [
    ("Failed", 65, "main: Error (exit code 65): fail 3/4: 3 of 4 GPU nodes pass"),
    ("Failed", 65, "main: Error (exit code 65): fail: The node was low on resource: memory"),
    ("Failed", 1, "main: Error (exit code 1)"),
    ("Failed", 137, "main: OOMKilled (exit code 137)"),
    ("Failed", 143, "Pod was active on the node longer than the specified deadline"),
    ("Failed", -1, "Step exceeded its deadline"),
]


def retried(phase: str, code: int, message: str) -> bool:
    """Evaluate the rendered condition as an engine does."""
    return boolean(EXPRESSION, {"lastRetry.exitCode": str(code), "lastRetry.status": phase, "lastRetry.message": message})


@pytest.mark.parametrize(("phase", "code", "message"), LOST)
def test_an_evicted_refused_or_lost_pod_gets_another_attempt(phase: str, code: int, message: str) -> None:
    assert retried(phase, code, message)
    assert is_lost(phase, message)


@pytest.mark.parametrize(("phase", "code", "message"), OWN)
def test_what_the_task_did_itself_is_final(phase: str, code: int, message: str) -> None:
    assert not retried(phase, code, message)
    assert not is_lost(phase, message)


def test_a_temporary_failure_is_retried_and_is_not_lost() -> None:
    message = f"main: Error (exit code {int(ExitCode.TEMPORARY)}): inconclusive: the API server went away"
    assert retried("Failed", ExitCode.TEMPORARY, message)
    assert not is_lost("Failed", message)


def test_every_template_that_makes_a_pod_has_the_condition() -> None:
    template = render(compile_plan(load(examples.path("h200-16"))), bringup.build).template
    strategies = [entry["retryStrategy"] for entry in template["spec"]["templates"] if "container" in entry]
    assert {(entry["expression"], entry["retryPolicy"]) for entry in strategies} == {(EXPRESSION, "Always")}


def test_lost_attempts_are_told_with_task_shard_times_and_reason(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path).run("r1")
    (folder.inputs / "tasks").mkdir(parents=True)
    plan = {"stages": [{"id": "gpu_operator", "tasks": [{"name": "apply"}]}]}
    (folder.inputs / "tasks/plan.json").write_text(json.dumps(plan))

    def node(number: int, phase: str, message: str, template: str = "gpu-operator-apply") -> RunNodeStatus:
        name = f"apply({number})"
        return RunNodeStatus(
            f"r1.{name}",
            name,
            "Pod",
            phase,
            message,
            template,
            "r1",
            {"shard": "2"},
            {},
            None,
            10.0 * number,
            10.0 * number + 5,
            [],
        )

    nodes = [
        node(2, "Error", ""),
        node(1, "Failed", LOST[2][2]),
        node(3, "Failed", OWN[0][2]),
        node(4, "Succeeded", ""),
        node(5, "Error", "x", "else"),
    ]
    first, second = lost_attempts(folder, nodes)
    assert (first.stage, first.task, first.shard, first.started, first.finished) == ("gpu_operator", "apply", 2, 10.0, 15.0)
    assert first.message.startswith("The node was low on resource: memory")
    assert second.message == "Error without a message"
