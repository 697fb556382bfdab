"""GPU groups with product and sharing of their own: what a spec may say, what is refused, and what each group's nodes show."""

import json
from typing import Any

import pytest

from tests.unit.rehearsal.gpu_groups import BY_GROUP, MIG, SLICED, TWO_PRODUCTS, WHOLE, group
from workflows import catalog
from workflows.spec import ClusterSpec, SpecErrors, load
from workflows.spec.cluster_spec import allocatable, product_label
from workflows.spec.gpu_pools import gpu_pools, plugin_configs, uniform
from workflows.spec.untested import untested


def spec_of(document: dict[str, Any], **sections: Any) -> ClusterSpec:
    return load(json.dumps(document | sections, indent=1))


def hosts(**groups: dict[str, Any]) -> dict[str, Any]:
    return {"servers": BY_GROUP["hosts"]["servers"], **groups}


def errors(document: dict[str, Any], **sections: Any) -> dict[str, str]:
    """Return path → problem of the errors of a spec: those of loading it, else those of the rules."""
    try:
        spec = spec_of(document, **sections)
    except SpecErrors as refused:
        return {error.path: error.problem for error in refused.errors}
    return {issue.path: issue.problem for issue in catalog.check(spec, catalog.load()) if issue.severity == "error"}


def test_each_group_has_its_own_resources_and_labels() -> None:
    mig, sliced, older = gpu_pools(spec_of(TWO_PRODUCTS))
    assert [allocatable(pool.spec) for pool in (mig, sliced, older)] == [
        {"nvidia.com/gpu": 56},
        {"nvidia.com/gpu.shared": 32, "nvidia.com/gpu": 0},
        {"nvidia.com/gpu": 4},
    ]
    assert [product_label(pool.spec) for pool in (mig, older)] == ["NVIDIA-H200-MIG-1g.18gb", "NVIDIA-A100-SXM4-80GB"]
    assert mig.labels == {"nvidia.com/mig.config": "all-1g.18gb", "nvidia.com/device-plugin.config": "whole"}
    assert sliced.labels == {"nvidia.com/mig.config": "all-disabled", "nvidia.com/device-plugin.config": "shared"}


def test_groups_that_agree_are_one_pool() -> None:
    other = MIG | {"ranges": "n[1-2]", "addresses": {"start": "10.10.9.1"}}
    spec = spec_of(BY_GROUP, hosts=hosts(a=MIG, b=other), slurm={"kind": "none"}, validation={"dcgm_level": 1})
    assert [pool.groups for pool in gpu_pools(spec)] == [("a", "b")]
    assert uniform(spec).sharing.mode == "mig"


def test_configurations_are_named_after_their_settings() -> None:
    many = SLICED | {"ranges": "t[1-2]", "addresses": {"start": "10.10.9.1"}, "sharing": {"mode": "mps", "replicas": 8}}
    configs = plugin_configs(spec_of(BY_GROUP, hosts=hosts(sliced=SLICED, many=many, whole=WHOLE)))
    assert list(configs) == ["whole", "time-slicing-4", "mps-8"]


def test_tests_that_do_not_run_name_their_groups() -> None:
    parts = {part.test: part.reason for part in untested(spec_of(TWO_PRODUCTS))}
    assert "level 1 instead of 2" in parts["DCGM diagnostics on mig"]
    assert parts["NCCL between nodes on sliced"] == "there is one machine with H200"
    assert "NCCL inside nodes on mig" in parts


MIXED = group("x1", "10.1.0.1", sharing={"mode": "mig", "profile": "1g.18gb", "strategy": "mixed"})
REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "sharing without GPUs": (
        {"hosts": hosts(whole=WHOLE, cpu={"role": "agent", "ranges": "c1", "sharing": {"mode": "none"}})},
        "hosts.cpu.sharing",
        "this group has no GPUs",
    ),
    "unknown product": (
        {"hosts": hosts(a=group("a1", "10.1.0.1", accelerator={"product": "MI300X"}))},
        "hosts.a.accelerator.product",
        "other than NVIDIA's are out of scope",
    ),
    "two MIG strategies": (
        {"hosts": hosts(mig=MIG, mixed=MIXED, whole=WHOLE)},
        "hosts.mixed.sharing.strategy",
        "groups differ in it: single in group mig, mixed in group mixed",
    ),
    "DRA beside the device plugin": (
        {"hosts": hosts(dra=group("d1", "10.1.0.1", sharing={"mode": "dra"}), whole=WHOLE)},
        "hosts.dra.sharing.mode",
        "DRA switches the device plugin off in the whole cluster",
    ),
    "GPUCluster with a shared group": (
        {
            "hosts": hosts(sliced=SLICED, whole=WHOLE),
            "sharing": {"mode": "dra"},
            "accelerator": {"product": "H200", "operator_mode": "gpu_cluster"},
        },
        "hosts.sliced.sharing.mode",
        "allocates GPUs by DRA only",
    ),
    "a section without effect": (
        {"hosts": hosts(mig=MIG, sliced=SLICED), "sharing": {"mode": "mps", "replicas": 2}},
        "sharing.mode",
        "every GPU group has a section sharing of its own",
    ),
    "a profile of another product": (
        {"hosts": hosts(mig=MIG | {"accelerator": {"product": "B200"}}, whole=WHOLE)},
        "hosts.mig.sharing.profile",
        "B200 has no profile 1g.18gb",
    ),
    "Slurm over a shared group": (
        {"slurm": {"kind": "slinky", "partitions": [{"name": "train", "groups": ["sliced", "whole"], "default": True}]}},
        "slurm.kind",
        "takes all GPUs of group sliced, which time_slicing shares",
    ),
    "a flavor over unlike groups": (
        {
            "slurm": {"kind": "none"},
            "scheduler": {"gang": "volcano", "quota": "kueue", "queues": [{"name": "research", "namespace": "team-a", "gpus": 8}]},
        },
        "scheduler.flavor.node_labels",
        "one flavor counts the GPUs of groups that are alike",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_cluster_cannot_have_is_refused(name: str) -> None:
    sections, path, problem = REFUSED[name]
    assert problem in errors(BY_GROUP, **sections).get(path, "")


def test_all_errors_are_told_at_once() -> None:
    wrong = {"hosts": hosts(mig=MIG, cpu={"role": "agent", "ranges": "c1", "sharing": {"mode": "mig"}}), "fabric": {"kind": "efa"}}
    assert {"hosts.cpu.sharing", "fabric.kind"} <= errors(BY_GROUP, **wrong).keys()
