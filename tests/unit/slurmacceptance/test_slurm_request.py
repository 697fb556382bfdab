"""Choices of `bringup accept --slurm`: what is refused, and the partners of a repaired node."""

import pytest

from workflows.app.run_options import UsageError
from workflows.app.slurm_acceptance_runs import SlurmRequest, partners, site_of
from workflows.plan.slurm_acceptance_plan import compile_slurm_acceptance
from workflows.stages.slurm_acceptance_site import SlurmAcceptanceSite


@pytest.mark.parametrize(
    ("request_options", "sentence"),
    [
        ({}, "--floor GB_S is missing"),
        ({"floor": 1.0, "partition": "a b"}, "--partition 'a b'"),
        ({"floor": 1.0, "account": "-x"}, "--account '-x'"),
        ({"floor": 1.0, "gpus_per_node": "eight"}, "--gpus-per-node 'eight'"),
        ({"floor": 1.0, "shared": "home"}, "--shared 'home': an absolute path"),
        ({"floor": 1.0, "script_marks": "/a", "waive_scripts": True}, "--script-marks asks for a proof"),
        ({"floor": 1.0, "nodes": ["gpu[9-1]"]}, "--nodes"),
        ({"floor": 1.0, "bandwidth_command": "a\x1bb"}, "--bandwidth-command"),
        ({"floor": 1.0, "bandwidth_command": "foo 'bar"}, "cannot be split into words: No closing quotation"),
    ],
)
def test_a_choice_that_cannot_be_right_is_refused(request_options: dict[str, object], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence.replace("[", r"\[")):
        site_of(SlurmRequest(**request_options))  # type: ignore[arg-type]


def test_partners_are_on_the_same_leaf_and_on_another() -> None:
    leaf = {"a": "1", "b": "1", "c": "2", "d": "2"}
    assert partners("d", ["a", "b", "c", "d"], leaf) == ("c", "a")
    assert partners("a", ["a", "b", "c"], {}) == ("b", "c")


def test_a_plan_is_pure_and_names_its_nodes() -> None:
    site = SlurmAcceptanceSite(cluster="lab", nodes=("n1", "n2"), floor=1.5, gpus=8, gpu_type="h200", marks="/marks")
    plan = compile_slurm_acceptance(site, "lab", "ada")
    assert plan.digest == compile_slurm_acceptance(site, "lab", "ada").digest
    assert [host.name for host in plan.hosts] == ["n1", "n2"]
    assert [step.name for step in plan.stages[0].steps] == ["control", "jobs", "bandwidth", "judge"]
    assert plan.stages[0].steps[2].task.expectations == {"floor": 1.5}
