"""Our values and objects against what the projects publish: no value that a chart ignores, no field that a CRD does not have."""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from workflows import catalog, spec
from workflows.examples import names, path

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or Path(__file__).parents[4] / "shared") / "crds"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason=f"no published charts and CRDs at {DATA}")

CHARTS = {
    "cert_manager": "cert-manager-2026-08-22/values.yaml",
    "gpu_operator": "gpu-operator-v26.7.0/values.yaml",
    "network_operator": "network-operator-2026-08-19/values.yaml",
    "dra_driver": "k8s-dra-driver-gpu-2026-05-15/values.yaml",
    "volcano": "volcano-2026-08-20/values.yaml",
    "kueue": "kueue-2026-08-22/values.yaml",
    "slurm_operator": "slurm-operator-2026-08-20/values.yaml",
    "slurm": "slurm-operator-2026-08-20/slurm-chart.values.yaml",
}
PERMISSIVE = {"node-feature-discovery"}
"""Sub-charts whose values the parent's file shows only in part."""

OF_SLURM = {"configMap", "extraConfMap"}
"""Maps whose keys are those of slurm.conf."""

FREE_NAMES = {"slurm.partitions": "all"}
"""Maps whose keys are names of ours, and the published entry that shows their shape."""

VARIANTS: dict[str, dict[str, Any]] = {
    "mig": {"sharing": {"mode": "mig", "profile": "1g.18gb", "strategy": "mixed"}},
    "time_slicing": {"sharing": {"mode": "time_slicing", "replicas": 4}},
    "mps": {"sharing": {"mode": "mps", "replicas": 2, "rename": False}},
    "dra_standalone": {"sharing": {"mode": "dra"}},
    "host_driver": {"accelerator": {"product": "H200", "driver": "host", "driver_version": "580.126.20"}},
    "ipoib": {"fabric": {"kind": "infiniband", "mode": "ipoib", "interfaces": ["ibs1"], "ip_pool": {"subnet": "172.16.0.0/16"}}},
    "host_device": {"fabric": {"kind": "infiniband", "mode": "host_device", "ip_pool": {"subnet": "172.16.0.0/16"}}},
    "sriov_ib": {"fabric": {"kind": "infiniband", "mode": "sriov", "ip_pool": {"subnet": "172.16.0.0/16"}, "driver": "operator"}},
    "sriov_eth": {"fabric": {"kind": "roce", "mode": "sriov", "ip_pool": {"subnet": "172.16.0.0/16", "gateway": "172.16.0.1"}}},
    "kueue": {
        "scheduler": {
            "quota": "kueue",
            "queues": [{"name": "q", "namespace": "a", "gpus": 8, "borrowing_limit": 4, "cohort": "all"}],
        }
    },
    "accounting": {
        "slurm": {"kind": "slinky", "accounting": {"host": "db.example.org", "password": {"env": "DB"}}, "login": {"replicas": 0}},
        "base_services": {"cert_manager": False},
    },
    "slinky_full": {
        "slurm": {
            "kind": "slinky",
            "accounting": {"host": "db.example.org", "password": {"env": "DB"}},
            "qos": [{"name": "train", "priority": 10}],
            "partitions": [{"name": "train", "groups": "gpu", "default": True, "qos": "train"}],
            "topology": "tree",
            "home": {"storage_class": "cephfs", "size": "1Ti"},
            "node": {"cpus": 180, "memory_gib": 1900},
            "prolog": {"10-check.sh": "#!/bin/sh\ntrue\n"},
            "epilog": {"10-clean.sh": "#!/bin/sh\ntrue\n"},
            "job_metrics": True,
            "tokens": [{"user": "slurm"}],
        }
    },
    "sunk": {
        "slurm": {"kind": "sunk", "repo": "oci://r.example.org/sunk", "version": "7.3.0"},
    },
}


def _cases() -> Iterator[tuple[str, spec.ClusterSpec]]:
    for name in names():
        yield name, spec.load(path(name))
    base = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
    for name, change in VARIANTS.items():
        yield name, spec.load(yaml.safe_dump(base | change))


CASES = dict(_cases())


@pytest.mark.parametrize("name", CASES)
def test_every_value_is_one_that_the_chart_knows(name: str) -> None:
    for release in catalog.resolve(CASES[name], catalog.load()):
        if release.id in CHARTS:
            assert list(_unknown(release.values, _defaults(release.id), release.id)) == []


@cache
def _defaults(component: str) -> dict[str, Any]:
    return dict(yaml.load((DATA / CHARTS[component]).read_text(encoding="utf-8"), Loader=yaml.CSafeLoader))


def _unknown(ours: Any, published: Any, here: str) -> Iterator[str]:
    if not isinstance(ours, Mapping) or not isinstance(published, Mapping) or not published:
        return
    for key, value in ours.items():
        if key in PERMISSIVE | OF_SLURM:
            continue
        if here in FREE_NAMES:
            yield from _unknown(value, published[FREE_NAMES[here]], f"{here}.{key}")
        elif key not in published:
            yield f"{here}.{key}"
        else:
            yield from _unknown(value, published[key], f"{here}.{key}")


@cache
def _schema(api_version: str, kind: str) -> dict[str, Any]:
    """Return the published schema of a kind; only the one file that holds it is parsed (all of them are 27 MB)."""
    group, version = api_version.split("/")
    for file in DATA.glob(f"*/crds/*{group}*.yaml"):
        text = file.read_text(encoding="utf-8")
        if f"kind: {kind}\n" in text:
            crd = yaml.load(text, Loader=yaml.CSafeLoader)["spec"]
            if (crd["group"], crd["names"]["kind"]) == (group, kind):
                return next(one["schema"]["openAPIV3Schema"] for one in crd["versions"] if one["name"] == version)
    raise LookupError(f"no CRD of {kind} in {api_version}")


@pytest.mark.parametrize("name", CASES)
def test_every_object_is_one_that_its_crd_takes(name: str) -> None:
    for release in catalog.resolve(CASES[name], catalog.load()):
        for item in release.objects:
            schema = _schema(item["apiVersion"], item["kind"])
            jsonschema.validate(item, schema)
            assert list(_undeclared(item, schema, item["kind"])) == []


def _undeclared(value: Any, schema: Mapping[str, Any], here: str) -> Iterator[str]:
    """Yield fields that an API server would prune: published schemas do not close their objects."""
    if isinstance(value, Mapping) and "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        for key, inner in value.items():
            if key in schema["properties"]:
                yield from _undeclared(inner, schema["properties"][key], f"{here}.{key}")
            elif key not in ("apiVersion", "kind", "metadata"):
                yield f"{here}.{key}"
    elif isinstance(value, list) and "items" in schema:
        for inner in value:
            yield from _undeclared(inner, schema["items"], f"{here}[]")


def test_each_crd_that_a_component_brings_exists_under_its_name() -> None:
    published = {
        match[1]
        for file in DATA.glob("*/crds/*.yaml")
        if (match := re.search(r"^  name: (\S+)$", file.read_text(encoding="utf-8"), re.MULTILINE))
    }
    groups = {name.split(".", 1)[1] for name in published}
    for component in catalog.load().components.values():
        for crd in component.crds:
            assert crd in published or crd.split(".", 1)[1] not in groups, crd
