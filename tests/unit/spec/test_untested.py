"""Settings of a spec that no test of its level uses are named as untested. Costs 0.3 s of CPU."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.untested import untested
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
