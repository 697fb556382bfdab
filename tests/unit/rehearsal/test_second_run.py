"""A second run on a healthy platform in use passes: Slurm holds every GPU, and each check proves its part all the same."""

from pathlib import Path

import pytest
import yaml

from tests.unit.rehearsal.small import SMALL
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.stand import stand
from workflows.spec import ClusterSpec, load

VARIANTS = {
    "volcano": {},
    "kai": {"scheduler": {"gang": "kai"}},
    "time_slicing": {"sharing": {"mode": "time_slicing", "replicas": 4}, "slurm": {"kind": "none"}},
    "dra": {
        "sharing": {"mode": "dra"},
        "accelerator": {"product": "H200", "per_node": 8, "driver": "operator", "operator_mode": "gpu_cluster"},
        "slurm": {"kind": "none"},
    },
}


def spec_of(variant: str) -> ClusterSpec:
    return load(yaml.safe_dump(SMALL | VARIANTS[variant]))


@pytest.mark.parametrize(
    "variant", [name if name == "volcano" else pytest.param(name, marks=pytest.mark.long) for name in VARIANTS]
)
def test_every_stage_passes_twice(variant: str, tmp_path: Path) -> None:
    spec = spec_of(variant)
    stages = [stage.id for stage in compile_plan(spec).stages]
    with stand(spec, tmp_path) as place:
        for number in ("first", "second"):
            for stage in stages:
                outcome = place.run(stage)
                assert outcome.exit_code == 0, (number, stage, outcome.verdict)
