"""Settings of a spec that no test of its level uses are named as untested. Costs 0.3 s of CPU."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows.spec.acceptance.untested import untested
from workflows.spec.cluster_spec import ClusterSpec
from workflows.stages import validation

EXAMPLE = Path(validation.__file__).parents[1] / "examples" / "h200-16.yaml"
ASKED = {
    "benchmarks": {"image": "bench:1"},
    "training": {"image": "torch:1"},
    "gpu_floors": {"gemm_tflops": 600, "adapters_gb_s": 300},
    "nccl": {"inter_node_floor_gb_s": 350, "alltoall_floor_gb_s": 40},
}
FULL_ALONE = ["benchmarks of storage and memory", "training on two nodes"]
ABOVE_QUICK = ["speed of each GPU", "NCCL over the adapters alone", "all_gather and alltoall over all nodes"]
MIG = {"sharing": {"mode": "mig", "profile": "1g.18gb"}}


def parts(settings: dict[str, Any], **over: Any) -> dict[str, str]:
    """Return the untested parts of validation, as test and the key that rules it out."""
    spec = ClusterSpec.model_validate(yaml.safe_load(EXAMPLE.read_text()) | over | {"validation": settings})
    return {part.test: part.path for part in untested(spec) if part.stage == "validation"}


@pytest.mark.parametrize(("level", "expected"), [("quick", FULL_ALONE + ABOVE_QUICK), ("standard", FULL_ALONE), ("full", [])])
def test_settings_without_effect_at_a_level_are_named(level: str, expected: list[str]) -> None:
    assert parts({"level": level} | ASKED) == dict.fromkeys(expected, "validation.level")
    if level != "full":
        assert parts({"level": level, "nccl": {"inter_node_floor_gb_s": 350}}) == {}


def test_a_floor_of_adapters_needs_whole_gpus() -> None:
    shown = parts({"level": "standard", "gpu_floors": {"adapters_gb_s": 300}}, **MIG)
    assert shown["NCCL over the adapters alone"] == "validation.gpu_floors.adapters_gb_s"


def test_a_training_job_needs_two_equal_machines_with_whole_gpus() -> None:
    level = {"level": "full", "training": {"image": "torch:1"}, "nccl": {"inter_node_floor_gb_s": 350}}
    hosts = yaml.safe_load(EXAMPLE.read_text())["hosts"]
    group = hosts["gpu"]
    one, other = ({**group, "ranges": f"gpu00{index}"} for index in (1, 2))
    mixed = parts(level, hosts={**hosts, "gpu": one, "old": {**other, "accelerator": {"product": "A100-80GB"}}})
    assert {test for test in mixed if test.startswith("training")} == {
        "training on two nodes on gpu",
        "training on two nodes on old",
    }
    assert parts(level, **MIG)["training on two nodes"] == "sharing.mode"
    assert "training on two nodes" not in parts(level)


@pytest.mark.parametrize(("level", "chosen", "lost"), [("full", 1, 3), ("full", 2, 3), ("standard", 2, 2), ("quick", 4, None)])
def test_mig_lowers_the_level_of_dcgm_that_the_plan_would_run(level: str, chosen: int, lost: int | None) -> None:
    settings = {"validation": {"level": level, "dcgm_level": chosen}}
    spec = ClusterSpec.model_validate(yaml.safe_load(EXAMPLE.read_text()) | MIG | settings)
    reasons = [part.reason for part in untested(spec) if part.test == "DCGM diagnostics"]
    assert [reason.partition(":")[0] for reason in reasons] == ([f"level 1 instead of {lost}"] if lost else [])
