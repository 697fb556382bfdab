"""Values of SUNK 7 against the published files of coreweave/sunk-anywhere: keys, types, and what its facts page requires."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from tests.chart_schemas import DATA, OVERLAID
from workflows import catalog, spec
from workflows.catalog import PlannedRelease
from workflows.examples import path
from workflows.plan import show
from workflows.plan.compiler import compile_plan

SUNK: dict[str, Any] = {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"}
FULL: dict[str, Any] = {
    "home": {"server": "10.0.0.5", "path": "/export/home"},
    "node": {"cpus": 180, "memory_gib": 1900, "reserved_memory_gib": 16},
    "qos": [{"name": "train", "priority": 10, "gpus_per_user": 64}],
    "partitions": [{"name": "train", "groups": "gpu", "default": True, "qos": "train"}],
    "topology": "tree",
    "prolog": {"10-check.sh": "#!/bin/sh\ntrue\n"},
    "pyxis": "privileged",
}
LOCK = {"key": "sunk.coreweave.com/lock", "operator": "Exists", "effect": "NoExecute"}
UNVERIFIED = (
    "compute.maxUnavailable",
    "login.updateStrategy",
    "slurmConfig.AccountingStorageEnforce",
    "slurmConfig.AccountingStorageTRES",
    "slurmConfig.TopologyPlugin",
    "slurmConfig.slurmd.prologConfigMap",
)
"""Keys of ours that no published file has: SUNK's guides name some, and slurmConfig takes those of slurm.conf."""


def cluster(**changes: Any) -> spec.ClusterSpec:
    base = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    return spec.load(yaml.safe_dump(base | {"slurm": SUNK | changes}))


def releases(**changes: Any) -> dict[str, PlannedRelease]:
    return {release.id: release for release in catalog.resolve(cluster(**changes), catalog.load())}


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no published charts and CRDs at {DATA}")
@pytest.mark.parametrize("changes", [{}, FULL, FULL | {"pyxis": "profiles", "home": {"storage_class": "cephfs", "size": "1Ti"}}])
def test_every_key_is_published_or_listed_as_unverified(changes: dict[str, Any]) -> None:
    for component, (files, _) in OVERLAID.items():
        release = releases(**changes)[component]
        published: dict[str, set[str]] = {}
        for file in files:
            for key, kind in _leaves(yaml.safe_load((DATA / file).read_text(encoding="utf-8"))):
                published.setdefault(key, set()).add(kind)
        unverified = set(catalog.unverified_values(release))
        for key, kind in _leaves(release.values):
            if _written(key) not in unverified and not any(known.startswith(f"{key}.") for known in published):
                kinds = next((kinds for known, kinds in published.items() if key == known or key.startswith(f"{known}.")), set())
                assert kinds, f"{component}: {key} is in no published file"
                quantity = {"number"} if key.endswith(("requests.*", "limits.*")) else set()
                assert kind in kinds | {"null", "map"} | quantity or kinds <= {"null", "map"}, f"{key} is {kind}, not {kinds}"


def _written(key: str) -> str:
    return key.replace("compute.nodes.*", "compute.nodes.train")


FREE = ("nodes", "s6", "gpuTypes", "nodeSelector", "requests", "limits", "partitionConfig")
"""Maps whose keys are names of groups, labels, resources or Slurm's own settings."""


def _leaves(value: Any, here: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{here}.{'*' if here.rpartition('.')[2] in FREE else key}" if here else str(key))
    else:
        kinds = {bool: "bool", int: "number", float: "number", str: "text", list: "list", tuple: "list", dict: "map"}
        yield here, kinds.get(type(value), "null")


def test_the_plan_lists_the_keys_that_no_published_file_has() -> None:
    plan = compile_plan(cluster(**FULL))
    (lines,) = [line for line in show.release_lines(plan) if "unverified" in line]
    assert lines.strip() == f"unverified values: {', '.join(UNVERIFIED)}"


def test_what_slurm_needs_of_the_chart() -> None:
    values = releases(**FULL)["sunk_slurm"].values
    group = values["compute"]["nodes"]["train"]
    assert group["gresGpu"] == "h200:8"
    assert group["resources"]["requests"] == group["resources"]["limits"]
    assert group["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/rdma_shared_device_a": 1, "cpu": 180, "memory": "1900Gi"}
    (term,) = group["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "bringup/group", "operator": "In", "values": ["gpu"]}]
    assert group["nodeSelector"] == {"bringup/group": "gpu"}
    classes = [values["controller"]["stateVolume"], values["login"]["sshKeyVolume"], values["moco"]["mysqlCluster"]["persistence"]]
    assert {volume["storageClassName"] for volume in classes} == {"local-path"}
    assert values["global"]["volumes"] == [{"name": "shared-home", "nfs": {"server": "10.0.0.5", "path": "/export/home"}}]
    assert values["global"]["volumeMounts"] == [{"name": "shared-home", "mountPath": "/home"}]
    assert values["scheduler"]["name"] == "sunk"
    assert values["scheduler"]["config"]["scheduler"]["gpuTypes"] == {"NVIDIA_H200": "h200"}
    assert values["compute"]["reservedMemory"] == "16384"
    assert values["slurmConfig"]["DefMemPerCPU"] == (1900 - 16) * 1024 // 180
    assert values["slurmConfig"]["slurmd"] == {"prologConfigMap": "slurm-prolog"}
    assert values["compute"]["pyxis"]["appArmorProfile"] == ""
    assert values["compute"]["pyxis"]["podSecurityContext"] is None


@pytest.mark.parametrize("part", ["controller", "rest", "accounting", "login"])
def test_public_images_are_pinned(part: str) -> None:
    image = releases()["sunk_slurm"].values[part]["image"]
    assert image["repository"].startswith("ghcr.io/coreweave/slurm-containers/controller")
    assert image["tag"] == "v25.05.3-coreweave.5-ubuntu22.04"


def test_everything_that_must_stay_tolerates_the_lock() -> None:
    planned = releases()
    slurm = planned["sunk_slurm"].values
    for part in ("controller", "rest", "accounting", "login", "scheduler", "syncer", "secretJob", "cleanupCompleting"):
        assert LOCK in slurm[part]["tolerations"], part
    assert all(LOCK in group["tolerations"] for group in slurm["compute"]["nodes"].values())
    manager = planned["cert_manager"].values
    parts = [manager, *(manager[part] for part in ("webhook", "cainjector", "startupapicheck")), planned["moco"].values]
    parts += [planned["sunk"].values[part] for part in ("operator", "scheduler", "syncer")]
    assert all(LOCK in part["tolerations"] for part in parts)


def test_the_database_stays_off_nodes_that_the_lock_clears() -> None:
    """No published value gives the database tolerations."""
    affinity = releases()["sunk_slurm"].values["moco"]["mysqlCluster"]["affinity"]
    (term,) = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term["matchExpressions"] == [{"key": "bringup/group", "operator": "In", "values": ["servers"]}]


def test_moco_comes_after_cert_manager_and_before_slurm() -> None:
    order = list(releases())
    assert order.index("cert_manager") < order.index("moco") < order.index("sunk_slurm")
    assert order.index("sunk") < order.index("sunk_slurm")
