"""GPU groups with product and sharing of their own: what a spec may say, what is refused, and what each group's nodes show."""

import json
from typing import Any

import pytest
import yaml

from steps.stages.os_prep import gate_gpus
from tests.unit.rehearsal.gpu_groups import BY_GROUP, MIG, OLDER, SLICED, TWO_PRODUCTS, WHOLE, group
from workflows import catalog
from workflows.spec import ClusterSpec, SpecErrors, load
from workflows.spec.accelerators import PRODUCTS
from workflows.spec.acceptance.untested import untested
from workflows.spec.cluster_spec import PRODUCT_LABEL, allocatable, product_label
from workflows.spec.gpu_pools import gpu_pools, plugin_configs, quota_flavors, uniform


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


def quota(**amounts: Any) -> dict[str, Any]:
    """A section `scheduler` with one queue."""
    return {"gang": "none", "quota": "kueue", "queues": [{"name": "research", "namespace": "team-a", **amounts}]}


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


def quota_objects(spec: ClusterSpec) -> dict[str, list[dict[str, Any]]]:
    """Return the specs of Kueue's objects by kind."""
    kueue = next(release for release in catalog.resolve(spec, catalog.load()) if release.id == "kueue")
    kinds: dict[str, list[dict[str, Any]]] = {}
    for item in kueue.objects:
        kinds.setdefault(item["kind"], []).append({"name": item["metadata"]["name"], **item["spec"]})
    return kinds


def test_each_product_after_sharing_has_a_flavor_with_its_own_quota() -> None:
    objects = quota_objects(spec_of(TWO_PRODUCTS))
    product = "nvidia.com/gpu.product"
    taint = {"key": "example.org/older", "effect": "NoSchedule", "operator": "Equal", "value": "yes"}
    assert objects["ResourceFlavor"] == [
        {"name": "gpu-h200-mig-1g-18gb", "nodeLabels": {product: "NVIDIA-H200-MIG-1g.18gb"}},
        {"name": "gpu", "nodeLabels": {product: "NVIDIA-H200"}},
        {"name": "gpu-a100-sxm4-80gb", "nodeLabels": {product: "NVIDIA-A100-SXM4-80GB"}, "tolerations": [taint]},
    ]
    group = objects["ClusterQueue"][0]["resourceGroups"][0]
    assert group["coveredResources"] == ["nvidia.com/gpu", "nvidia.com/gpu.shared"]
    amounts = {
        flavor["name"]: {row["name"].partition("/")[2]: row["nominalQuota"] for row in flavor["resources"]}
        for flavor in group["flavors"]
    }
    assert amounts == {
        "gpu-h200-mig-1g-18gb": {"gpu": 100, "gpu.shared": 0},
        "gpu": {"gpu": 0, "gpu.shared": 16},
        "gpu-a100-sxm4-80gb": {"gpu": 8, "gpu.shared": 0},
    }


OWN_FLOORS = {"nccl": {"intra_node_floor_gb_s": 20, "inter_node_floor_gb_s": 20}}
"""Floors of the site, without which some products are refused."""


def labelled(label: str, ranges: str, start: str) -> dict[str, Any]:
    return group(ranges, start, accelerator={"product": "L40S", "product_label": label})


FLAVORS: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "one product": ({"whole": WHOLE}, {"gpu": "NVIDIA-H200"}),
    "a further group renames no flavor": (
        {"whole": WHOLE, "older": OLDER},
        {"gpu": "NVIDIA-H200", "gpu-a100-sxm4-80gb": "NVIDIA-A100-SXM4-80GB"},
    ),
    "nor does the order of groups": (
        {"older": OLDER, "whole": WHOLE},
        {"gpu-a100-sxm4-80gb": "NVIDIA-A100-SXM4-80GB", "gpu": "NVIDIA-H200"},
    ),
    "groups whose names differ in what a flavor's cannot have": (
        {"gpu": WHOLE, "gpu_": OLDER, "gpu__": labelled("NVIDIA-L40S", "l1", "10.10.1.41")},
        {"gpu": "NVIDIA-H200", "gpu-a100-sxm4-80gb": "NVIDIA-A100-SXM4-80GB", "gpu-l40s": "NVIDIA-L40S"},
    ),
    "labels that differ in what a name cannot have": (
        {"gpu": WHOLE, "a": labelled("L40.S", "l1", "10.10.1.41"), "b": labelled("l40_s", "l2", "10.10.1.42")},
        {"gpu": "NVIDIA-H200", "gpu-l40-s-a5cfba": "L40.S", "gpu-l40-s-c1a09f": "l40_s"},
    ),
}
"""GPU groups of a spec, and the names of the flavors with the product labels that they select."""


@pytest.mark.parametrize("name", FLAVORS)
def test_flavors_keep_their_names(name: str) -> None:
    groups, flavors = FLAVORS[name]
    spec = spec_of(BY_GROUP, hosts=hosts(**groups), slurm={"kind": "none"}, validation=OWN_FLOORS)
    names = [(flavor.name, flavor.labels[PRODUCT_LABEL]) for flavor in quota_flavors(spec)]
    assert names == list(flavors.items())


def test_groups_of_one_product_after_sharing_are_one_flavor() -> None:
    fewer = WHOLE | {"ranges": "n[1-2]", "addresses": {"start": "10.10.9.1"}, "accelerator": {"product": "H200", "per_node": 4}}
    spec = spec_of(BY_GROUP, hosts=hosts(whole=WHOLE, fewer=fewer), slurm={"kind": "none"}, scheduler=quota(gpus=24))
    objects = quota_objects(spec)
    assert [flavor["name"] for flavor in objects["ResourceFlavor"]] == ["gpu"]
    assert objects["ClusterQueue"][0]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] == 24
    assert "scheduler.queues" in errors(BY_GROUP, hosts=hosts(whole=WHOLE, fewer=fewer), scheduler=quota(gpus=25))


@pytest.mark.parametrize("product", sorted(set(gate_gpus.PRODUCTS.values())))
def test_a_spec_can_have_every_product_that_a_gate_knows(product: str) -> None:
    nearest = gate_gpus.NEAREST.get(product)
    assert (nearest is None) == (product in PRODUCTS)
    if nearest is not None:
        own = yaml.safe_load(f"{{{nearest}, product_label: NVIDIA-{product}}}")
        other = group("l1", "10.10.1.41", accelerator=own)
        _, pool = gpu_pools(spec_of(BY_GROUP, hosts=hosts(whole=WHOLE, own=other), validation=OWN_FLOORS))
        assert pool.accelerator.expected_pcie_generation == own.get("pcie_generation", pool.accelerator.facts.pcie_generation)


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
    "a quota for which of several flavors": (
        {"slurm": {"kind": "none"}, "scheduler": quota(gpus=8)},
        "scheduler.queues[0].gpus",
        "each with a flavor (gpu-h200-mig-1g-18gb of group mig; gpu of group sliced, whole), and gpus does not say which it is for",
    ),
    "a quota of a group without GPUs": (
        {"slurm": {"kind": "none"}, "scheduler": quota(gpus_by_group={"mig": 8, "servers": 1})},
        "scheduler.queues[0].gpus_by_group.servers",
        "no flavor counts the GPUs of a group servers",
    ),
    "a quota above the instances of its group": (
        {"slurm": {"kind": "none"}, "scheduler": quota(gpus_by_group={"mig": 113, "whole": 16})},
        "scheduler.queues",
        "promise 113 nvidia.com/gpu (research 113), and 2 machines advertise 112",
    ),
    "a quota in two ways": (
        {"slurm": {"kind": "none"}, "scheduler": quota(gpus=8, gpus_by_group={"mig": 8})},
        "scheduler.queues[0]",
        "both gpus and gpus_by_group",
    ),
    "a flavor whose labels several kinds of nodes have": (
        {"slurm": {"kind": "none"}, "scheduler": quota(gpus=8) | {"flavor": {"node_labels": {"rack": "a"}}}},
        "scheduler.flavor.node_labels",
        "groups that differ in product or sharing",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_one_cluster_cannot_have_is_refused(name: str) -> None:
    sections, path, problem = REFUSED[name]
    assert problem in errors(BY_GROUP, **sections).get(path, "")


def test_all_errors_are_told_at_once() -> None:
    wrong = {"hosts": hosts(mig=MIG, cpu={"role": "agent", "ranges": "c1", "sharing": {"mode": "mig"}}), "fabric": {"kind": "efa"}}
    assert {"hosts.cpu.sharing", "fabric.kind"} <= errors(BY_GROUP, **wrong).keys()
