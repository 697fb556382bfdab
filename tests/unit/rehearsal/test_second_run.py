"""A second run on a healthy platform in use passes: Slurm holds every GPU, and each check proves its part all the same; SUNK locks
the nodes of its jobs besides."""

from pathlib import Path

import pytest
import yaml

from steps.clients.store import Store
from tests.unit.rehearsal.small import SMALL
from tests.unit.rehearsal.stage_bench import RUN, StageBench, stage_bench
from workflows.plan.compiler import compile_plan
from workflows.rehearsal.simulator.api.api_client import Api
from workflows.rehearsal.simulator.api.api_kinds import NODES, Ref
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


SUNK = {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"}
LOCK = {"key": "sunk.coreweave.com/lock", "value": "true", "effect": "NoExecute"}


def spec_of(variant: str) -> ClusterSpec:
    return load(yaml.safe_dump(SMALL | VARIANTS[variant]))


@pytest.mark.parametrize(
    "variant", [name if name == "volcano" else pytest.param(name, marks=pytest.mark.long) for name in VARIANTS]
)
def test_every_stage_passes_twice(variant: str, tmp_path: Path) -> None:
    spec = spec_of(variant)
    stages = [stage.id for stage in compile_plan(spec).stages]
    with stage_bench(spec, tmp_path) as place:
        for number in ("first", "second"):
            passes(place, stages, number)


def lock(kubeconfig: Path, *names: str) -> None:
    """As SUNK does with the nodes of a job."""
    api = Api.from_kubeconfig(kubeconfig)
    for name in names:
        api.merge(NODES, Ref("", name), {"spec": {"taints": [LOCK]}})
    api.close()


def passes(place: StageBench, stages: list[str], run: str) -> None:
    for stage in stages:
        outcome = place.run(stage)
        assert outcome.exit_code == 0, (run, stage, outcome.verdict and outcome.verdict.reason)


@pytest.mark.parametrize("some", [("os_prep", "rke2", "gang"), pytest.param((), marks=pytest.mark.long)], ids=["some", "all"])
def test_stages_pass_on_nodes_that_jobs_of_sunk_have_locked(some: tuple[str, ...], tmp_path: Path) -> None:
    spec = load(yaml.safe_dump(SMALL | {"slurm": SUNK}))
    stages = [stage.id for stage in compile_plan(spec).stages if not some or stage.id in some]
    with stage_bench(spec, tmp_path) as place:
        passes(place, stages, "first")
        lock(tmp_path / "cluster/kubeconfig", "gpu1", "gpu2", "gpu3")
        passes(place, stages, "second")
    seen = Store(max(tmp_path.glob("*-rke2")) / "store").records(RUN, "rke2", "nodes")[0].verdict
    assert seen is not None
    said = {row.node: row.seen.partition("; ")[2] for row in seen.nodes}
    assert said == {"sv1": ""} | dict.fromkeys(
        ("gpu1", "gpu2", "gpu3"), "sunk.coreweave.com/lock=true:NoExecute is the platform's own"
    )
