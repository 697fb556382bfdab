"""Values of Slinky's chart `slurm`: home, scripts, topology, QoS, metrics by job, tokens, each in its own place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit.catalog.test_published_schemas import CASES, DATA
from workflows import catalog, spec
from workflows.examples import path

TOKENS = "slurm-operator-2026-08-20/crds/slinky.slurm.net_tokens.yaml"


def values(cluster: spec.ClusterSpec = CASES["slinky_full"]) -> dict[str, Any]:
    return next(dict(release.values) for release in catalog.resolve(cluster, catalog.load()) if release.id == "slurm")


def test_slurm_has_what_the_operator_no_longer_writes() -> None:
    """Since 1.2 the operator's slurm.conf knows no GPU, and a cgroup.conf of ours replaces its own with IgnoreSystemd."""
    made = values(spec.load(path("h200-16")))
    conf = made["controller"]["extraConfMap"]
    assert (conf["GresTypes"], conf["TaskPlugin"], conf["ReturnToService"]) == ("gpu", "task/affinity,task/cgroup", "2")
    assert not {"AccountingStorageTRES", "MaxNodeCount"} & conf.keys()
    assert {"IgnoreSystemd=yes", "ConstrainDevices=yes"} <= set(made["configFiles"]["cgroup.conf"].splitlines())


def test_large_fleets_have_room_for_every_node() -> None:
    data = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    data["rke2"]["cluster_cidr"] = "10.64.0.0/10"
    for count, room in ((800, None), (1000, "1250"), (3000, "3750")):
        data["hosts"]["gpu"] |= {"ranges": f"gpu[0001-{count:04d}]", "addresses": {"start": "172.16.0.1"}}
        many = spec.load(yaml.safe_dump(data))
        assert values(many)["controller"]["extraConfMap"].get("MaxNodeCount") == room


def test_home_is_on_nodes_and_logins() -> None:
    made = values()
    mounts, volumes = (
        [{"name": "shared-home", "mountPath": "/home"}],
        [{"name": "shared-home", "persistentVolumeClaim": {"claimName": "slurm-home"}}],
    )
    group, login = made["nodesets"]["gpu"], made["loginsets"]["slinky"]
    assert (group["slurmd"]["volumeMounts"], group["podSpec"]["volumes"]) == (mounts, volumes)
    assert (login["login"]["volumeMounts"], login["podSpec"]["volumes"]) == (mounts, volumes)


def test_topology_has_every_machine_below_its_leaf() -> None:
    (tree,) = yaml.safe_load(values()["configFiles"]["topology.yaml"])
    assert (tree["topology"], tree["cluster_default"]) == ("tree", True)
    assert tree["tree"]["switches"] == [
        {"switch": "root", "children": "leaf1,leaf2"},
        {"switch": "leaf1", "nodes": "gpu[001-008]"},
        {"switch": "leaf2", "nodes": "gpu[009-016]"},
    ]


def test_topology_names_nodes_as_slinky_does() -> None:
    """The operator cuts the name of a node at its first dot."""
    data = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    data["hosts"]["gpu"] |= {"ranges": "gpu[1-2].example.org", "topology": {"leaf": "leaf1"}}
    data["slurm"] = {"kind": "slinky", "topology": "tree"}
    (tree,) = yaml.safe_load(values(spec.load(yaml.safe_dump(data)))["configFiles"]["topology.yaml"])
    assert tree["tree"]["switches"][1] == {"switch": "leaf1", "nodes": "gpu[1-2]"}


def test_limits_are_enforced_where_there_is_a_qos() -> None:
    made = values()
    assert (
        made["controller"]["extraConfMap"].items()
        >= {
            "AccountingStorageEnforce": "limits,qos",
            "AccountingStorageTRES": "gres/gpu",
        }.items()
    )
    assert made["partitions"]["train"]["configMap"] == {"Default": "YES", "MaxTime": "UNLIMITED", "QOS": "train"}


def test_scripts_and_job_metrics() -> None:
    made = values()
    for kind, name in (("prolog", "10-check.sh"), ("epilog", "10-clean.sh")):
        scripts = made[f"{kind}Scripts"]
        # the last script leaves the mark by which a job sees that all ran
        assert list(scripts) == sorted(scripts) == [name, f"zz-bringup-{kind}.sh"]
        assert scripts[name] == "#!/bin/sh\ntrue\n"
        assert f"/run/bringup/{kind}.$SLURM_JOB_ID" in scripts[f"zz-bringup-{kind}.sh"]
    assert not made["prologScripts"].keys() & made["epilogScripts"].keys(), "the operator projects both into one folder"
    assert made["vendor"]["nvidia"]["dcgm"]["enabled"] is True


@pytest.mark.skipif(not Path(DATA, TOKENS).is_file(), reason=f"no published CRD at {DATA}")
def test_a_token_is_one_that_its_crd_takes() -> None:
    (token,) = values()["extraObjects"]
    crd = yaml.safe_load(Path(DATA, TOKENS).read_text(encoding="utf-8"))
    jsonschema.validate(token, crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
    known = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert set(token["spec"]) <= set(known)
    assert token["spec"]["secretRef"] == {"name": "slurm-token-slurm", "key": "SLURM_JWT"}
