"""Spec + catalog → releases: layers, criteria, coordinates, and that nothing is left empty."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import catalog, spec
from workflows.catalog.resolve import may_upgrade
from workflows.examples import names, path
from workflows.spec.fields import is_floating

BASE: dict[str, Any] = yaml.safe_load(path("h200-16").read_text(encoding="utf-8"))
DIGEST = "sha256:" + "a" * 64


def load(**sections: Any) -> spec.ClusterSpec:
    return spec.load(json.dumps({key: value for key, value in (BASE | sections).items() if value is not None}) + "\n")


def releases(**sections: Any) -> dict[str, catalog.PlannedRelease]:
    return {release.id: release for release in catalog.resolve(load(**sections), catalog.load())}


@pytest.mark.parametrize("name", names())
def test_every_planned_release_names_what_an_operator_must_know(name: str) -> None:
    for release in catalog.resolve(spec.load(path(name)), catalog.load()):
        for field in ("source", "version", "namespace", "rollout", "health", "rollback", "release_name"):
            assert getattr(release, field), (release.id, field)
        assert release.gates
        assert release.timeout_seconds >= 60


def test_releases_come_in_the_order_of_stages_and_needs() -> None:
    order = list(releases())
    assert order == [
        "prometheus_operator_crds",
        "cert_manager",
        "local_path_provisioner",
        "gpu_operator",
        "network_operator",
        "volcano",
        "slurm_operator_crds",
        "slurm_operator",
        "slurm",
        "mpi_operator",
    ]
    for release in releases().values():
        assert all(order.index(needed) < order.index(release.id) for needed in release.needs)


def test_names_are_those_that_gates_look_for() -> None:
    found = {release.release_name: release.namespace for release in releases().values()}
    assert found == {
        "prometheus-operator-crds": "monitoring",
        "cert-manager": "cert-manager",
        "local-path-provisioner": "local-path-storage",
        "gpu-operator": "gpu-operator",
        "network-operator": "nvidia-network-operator",
        "volcano": "volcano-system",
        "slurm-operator-crds": "slinky",
        "slurm-operator": "slinky",
        "slurm": "slurm",
        "mpi-operator": "mpi-operator",
    }


def test_a_disabled_stage_plans_no_release() -> None:
    assert set(releases(stages=["os_prep", "rke2", "gpu_operator"], approvals=None)) == {"gpu_operator"}


def test_a_chart_repository_and_an_oci_registry_are_written_as_helmchart_wants_them() -> None:
    found = releases()
    assert (found["gpu_operator"].repo, found["gpu_operator"].chart) == ("https://helm.ngc.nvidia.com/nvidia", "gpu-operator")
    assert (found["slurm"].repo, found["slurm"].chart) == ("", "oci://ghcr.io/slinkyproject/charts/slurm")
    assert found["mpi_operator"].manifest.endswith("/mpi-operator/v0.8.2/deploy/v2beta1/mpi-operator.yaml")
    assert found["mpi_operator"].chart == ""


def test_rke2_gets_the_one_setting_that_survives_a_restart() -> None:
    values = releases()["gpu_operator"].values
    assert values["toolkit"] == {"env": [{"name": "CONTAINERD_SOCKET", "value": "/run/k3s/containerd/containerd.sock"}]}
    assert values["dcgmExporter"]["serviceMonitor"] == {"enabled": False}
    assert releases()["network_operator"].values["nfd"] == {"enabled": False, "deployNodeFeatureRules": True}


HOST = {"product": "H200", "driver": "host", "driver_version": "580.126.20"}
OVERLAID: list[tuple[str, dict[str, Any], str, Callable[[dict[str, Any]], Any], Any]] = [
    ("no host driver", {}, "gpu_operator", lambda v: v["driver"]["enabled"], True),
    ("host driver", {"accelerator": HOST}, "gpu_operator", lambda v: v["driver"]["enabled"], False),
    (
        "pinned driver",
        {"accelerator": {"product": "H200", "driver_version": "595.91.07"}},
        "gpu_operator",
        lambda v: v["driver"]["version"],
        "595.91.07",
    ),
    ("host NIC driver", {}, "gpu_operator", lambda v: v["driver"]["rdma"]["useHostMofed"], True),
    (
        "operator NIC driver",
        {"fabric": {"kind": "infiniband", "driver": "operator"}},
        "gpu_operator",
        lambda v: "rdma" in v["driver"],
        False,
    ),
    ("blackwell", {"accelerator": {"product": "B200"}}, "gpu_operator", lambda v: v["driver"]["kernelModuleType"], "open"),
    (
        "mig",
        {"sharing": {"mode": "mig", "profile": "1g.18gb", "strategy": "mixed"}},
        "gpu_operator",
        lambda v: v["mig"]["strategy"],
        "mixed",
    ),
    ("dra", {"sharing": {"mode": "dra"}}, "gpu_operator", lambda v: v["devicePlugin"]["enabled"], False),
    ("dra root", {"sharing": {"mode": "dra"}}, "dra_driver", lambda v: v["nvidiaDriverRoot"], "/run/nvidia/driver"),
    ("dra host root", {"sharing": {"mode": "dra"}, "accelerator": HOST}, "dra_driver", lambda v: v["nvidiaDriverRoot"], "/"),
    (
        "sriov",
        {"fabric": {"kind": "roce", "mode": "sriov", "ip_pool": {"subnet": "172.16.0.0/16"}}},
        "network_operator",
        lambda v: v["sriovNetworkOperator"]["enabled"],
        True,
    ),
    ("no cert-manager", {"base_services": {"cert_manager": False}}, "slurm_operator", lambda v: v["certManager"]["enabled"], False),
]


@pytest.mark.parametrize(("why", "sections", "release", "value", "expected"), OVERLAID, ids=[case[0] for case in OVERLAID])
def test_overlays_apply_by_criteria(
    why: str, sections: dict[str, Any], release: str, value: Callable[[dict[str, Any]], Any], expected: Any
) -> None:
    sections = {"validation": {"nccl": {"inter_node_floor_gb_s": 300, "intra_node_floor_gb_s": 300}}} | sections
    assert value(dict(releases(**sections)[release].values)) == expected


def test_time_slicing_is_prepared_but_off_until_a_node_is_labelled() -> None:
    config = releases(sharing={"mode": "time_slicing", "replicas": 4})["gpu_operator"].values["devicePlugin"]["config"]
    assert config["default"] == "whole"
    assert yaml.safe_load(config["data"]["whole"]) == {"version": "v1"}
    slicing = yaml.safe_load(config["data"]["shared"])["sharing"]["timeSlicing"]
    assert slicing == {
        "renameByDefault": True,
        "failRequestsGreaterThanOne": True,
        "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
    }


@pytest.mark.parametrize("names", [[], ["f0", "f1"]], ids=["every NIC", "named NICs"])
def test_virtual_functions_come_from_every_device_id_and_named_interface(names: list[str]) -> None:
    chosen = {"device_ids": ["1021", "101d"], "interfaces": names, "nics_per_node": 2}
    fabric = {"kind": "roce", "mode": "sriov", "ip_pool": {"subnet": "172.16.0.0/16"}, **chosen}
    objects = releases(fabric=fabric)["network_operator"].objects
    policies = [item for item in objects if item["kind"] == "SriovNetworkNodePolicy"]
    assert [item["metadata"]["name"] for item in policies] == ["fabric", "fabric-101d"]
    selector = {"vendor": "15b3"} | ({"pfNames": names} if names else {})
    assert [item["spec"]["nicSelector"] for item in policies] == [selector | {"deviceID": "1021"}, selector | {"deviceID": "101d"}]
    assert {item["spec"]["resourceName"] for item in policies} == {"rdma_shared_device_a"}


def test_whole_devices_are_selected_by_the_words_of_their_plugin() -> None:
    """The SR-IOV device plugin calls device ids `devices`; it ignored `deviceIDs` and gave pods the NICs of storage too."""
    pool = {"ip_pool": {"subnet": "172.16.0.0/16"}}
    fabric = {"kind": "infiniband", "mode": "host_device", "device_ids": ["1021"], "interfaces": ["ibs1"], "nics_per_node": 1}
    policy, *_ = releases(fabric=fabric | pool)["network_operator"].objects
    (resource,) = json.loads(policy["spec"]["sriovDevicePlugin"]["config"])["resourceList"]
    assert resource["selectors"] == {"vendors": ["15b3"], "devices": ["1021"], "isRdma": True, "pfNames": ["ibs1"]}


def test_gpu_cluster_takes_the_line_that_has_it() -> None:
    release = {one.id: one for one in catalog.resolve(spec.load(path("dra")), catalog.load())}["gpu_operator"]
    assert release.version == "v26.7.0"
    assert release.values["clusterPolicy"] == {"deployCR": False}
    assert release.values["gpuCluster"] == {"deployCR": True}
    assert release.values["driver"]["nvidiaDriverCRD"] == {"enabled": True}
    assert [layer.origin for layer in release.provenance] == [
        "values/gpu_operator.yaml",
        "overlay dra_gpu_cluster",
        "overlay accelerator_blackwell",
        "overlay gpu_driver_version",
        "overlay dra_gpu_cluster_operator_driver",
    ]


def test_the_spec_overrides_all_and_provenance_says_so() -> None:
    override = {
        "gpu_operator": {"version": "v26.3.2", "values": {"mig": {"strategy": "mixed"}, "psa": {"enabled": True}}, "digest": DIGEST}
    }
    release = releases(overrides=override)["gpu_operator"]
    assert (release.version, release.digest) == ("v26.3.2", DIGEST)
    assert release.values["mig"] == {"strategy": "mixed"}
    assert release.values["nfd"] == {"enabled": True}
    assert release.provenance[-1] == catalog.ValuesLayer("spec overrides.gpu_operator", ("mig.strategy", "psa.enabled"))


def test_a_users_own_values_are_not_filled() -> None:
    release = releases(overrides={"gpu_operator": {"values": {"daemonsets": {"labels": {"x": "${name}"}}}}})["gpu_operator"]
    assert release.values["daemonsets"]["labels"]["x"] == "${name}"


def test_an_override_of_what_is_not_planned_is_an_error() -> None:
    with pytest.raises(spec.SpecErrors, match=r"overrides\.kueue\n.* no kueue, .* stage gang with quota"):
        releases(overrides={"kueue": {"version": "0.19.2"}})
    with pytest.raises(spec.SpecErrors, match=r"overrides\.kueeu\n  error  this spec plans no such component"):
        releases(overrides={"kueeu": {"version": "0.19.2"}})


def test_releases_and_rules_report_their_errors_together() -> None:
    sections = {"overrides": {"kueeu": {}}, "rke2": BASE["rke2"] | {"cluster_cidr": "10.10.0.0/16"}}
    with pytest.raises(spec.SpecErrors) as caught:
        catalog.check(load(**sections), catalog.load())
    assert {"overrides.kueeu", "rke2.registration_address"} <= {error.path for error in caught.value.errors}


def test_rules_check_the_valid_sections_of_a_spec_with_errors() -> None:
    with pytest.raises(spec.SpecErrors) as caught:
        load(validation={"dcgm_level": 9}, rke2=BASE["rke2"] | {"cluster_cidr": "10.10.0.0/16"})
    assert [error.path for error in caught.value.errors] == ["validation.dcgm_level"]
    further = {issue.path for issue in catalog.further_errors(caught.value, catalog.load())}
    assert further == {"hosts.servers.addresses", "hosts.gpu.addresses", "rke2.registration_address"}
    with pytest.raises(spec.SpecErrors) as caught:
        load(rke2=BASE["rke2"] | {"cluster_cidr": "10.10.0.0/16", "cni": "weave"})
    assert {issue.path for issue in catalog.further_errors(caught.value, catalog.load())} == further


def test_a_broken_section_hides_no_error_of_another() -> None:
    further = broken_further(
        accelerator={"product": "MI300X"},
        fabric={"kind": "infiniband", "rate_gbit": "fast"},
        rke2=BASE["rke2"] | {"cluster_cidr": "10.10.0.0/16"},
        os={"dns": {"servers": ["10.43.0.10"]}},
        overrides={"gpu_operator": {"values": {"drver": {"enabled": True}}}},
    )
    networks = {"hosts.servers.addresses", "hosts.gpu.addresses", "rke2.registration_address", "os.dns.servers"}
    assert further >= networks | {"overrides.gpu_operator.values.drver"}


def test_a_broken_key_hides_no_error_of_the_other_keys_of_its_section() -> None:
    values = {"driver": {"verison": "580.126.20"}, "nfd": {"enabled": "true"}}
    overrides = {"gpu-operator": {}, "gpu_operator": {"digest": "sha256:abc", "values": values}, "volcano": {"version": "1.15.x"}}
    assert broken_further(overrides=overrides) == {
        "overrides.volcano.version",
        "overrides.gpu_operator.values.driver.verison",
        "overrides.gpu_operator.values.nfd.enabled",
    }
    rke2 = BASE["rke2"] | {"cluster_cidr": "10.10.0.0/16", "join_batch": 200}
    assert "hosts.gpu.addresses" in broken_further(rke2=rke2)
    floors = {"nccl": {"inter_node_floor_gb_s": 300}, "gpu_floors": {"gemm_tflops": 90000}, "runs": 0}
    assert "validation.gpu_floors.gemm_tflops" in broken_further(validation=floors)


def test_a_field_that_breaks_a_rule_between_sections_hides_no_error_of_its_section() -> None:
    overlapping = BASE["rke2"] | {"cluster_cidr": "10.43.0.0/16"}
    assert "os.dns.servers" in broken_further(rke2=overlapping, os={"dns": {"servers": ["10.43.0.10"]}})


def broken_further(**sections: Any) -> set[str]:
    """Return the keys at fault that compatibility rules find in a spec that cannot be loaded."""
    with pytest.raises(spec.SpecErrors) as caught:
        load(**sections)
    return {issue.path for issue in catalog.further_errors(caught.value, catalog.load())}


def test_a_floating_version_is_an_error() -> None:
    with pytest.raises(spec.SpecErrors, match="P13"):
        releases(overrides={"gpu_operator": {"version": "26.x"}})


def test_behind_an_air_gap_charts_come_from_the_mirror() -> None:
    airgap = {"registry": "r.example.org", "charts": "oci://r.example.org/charts", "digests": {"gpu_operator": DIGEST}}
    release = releases(airgap=airgap)["gpu_operator"]
    assert (release.chart, release.repo, release.digest) == ("oci://r.example.org/charts/gpu-operator", "", DIGEST)


def test_sunk_comes_from_the_repository_of_the_spec() -> None:
    slurm = {"kind": "sunk", "repo": "https://charts.example.org", "version": "7.3.0"}
    found = releases(slurm=slurm)
    assert (found["sunk"].source, found["sunk"].version) == ("https://charts.example.org sunk", "7.3.0")
    assert found["sunk_slurm"].namespace == "tenant-slurm"
    assert found["sunk"].values["nvidia-device-plugin"] == {"enabled": False}
    keys = {one["key"] for one in found["gpu_operator"].values["daemonsets"]["tolerations"]}
    assert "sunk.coreweave.com/lock" in keys


def test_slurm_says_what_the_machines_have() -> None:
    values = releases()["slurm"].values
    nodes = values["nodesets"]["gpu"]
    assert nodes["slurmd"]["resources"]["limits"] == {"nvidia.com/gpu": 8, "rdma/rdma_shared_device_a": 1}
    assert nodes["extraConfMap"] == {"Gres": ["gpu:h200:8"]}
    assert nodes["podSpec"]["nodeSelector"] == {"bringup/group": "gpu"}
    assert values["partitions"]["train"]["configMap"] == {"Default": "YES", "MaxTime": "7-00:00:00"}
    assert "accounting" not in values


def test_the_same_spec_gives_the_same_bytes() -> None:
    assert repr(releases()) == repr(releases())


def test_the_catalog_pins_everything() -> None:
    known = catalog.load()
    for name, component in known.components.items():
        assert component.version or "version" in component.from_spec, name
        assert component.version is None or not is_floating(component.version), name
        assert component.sources, name
    for overlay in known.overlays.values():
        assert all(part.version is None or not is_floating(part.version) for part in overlay.components.values())


def test_every_values_and_object_file_is_used() -> None:
    known = catalog.load()
    assert {component.values for component in known.components.values() if component.values} == set(known.values)
    assert {part.file for component in known.components.values() for part in component.objects} == set(known.objects)


def test_a_resolve_takes_less_than_50_ms_for_any_fleet(tmp_path: Path) -> None:
    from time import process_time

    cluster, known = load(), catalog.load()
    start = process_time()
    catalog.resolve(cluster, known)
    assert process_time() - start < 0.05


@pytest.mark.parametrize(
    ("installed", "wanted", "allowed"),
    [
        ("v26.3.1", "v26.3.3", True),
        ("v26.3.3", "v26.7.0", True),
        ("v25.10.1", "v26.3.3", True),
        ("v25.10.1", "v26.7.0", False),
        ("v26.7.0", "v26.3.3", False),
        ("v26.3.3", "v27.1.0", False),
    ],
)
def test_the_gpu_operator_moves_one_major_at_a_time(installed: str, wanted: str, allowed: bool) -> None:
    reachable = releases(overrides={"gpu_operator": {"version": wanted}})["gpu_operator"].upgrade_from
    assert may_upgrade(installed, reachable) is allowed


def test_a_component_without_lines_has_no_upgrade_rule() -> None:
    assert releases()["volcano"].upgrade_from == ()
    assert may_upgrade("0.1", ())


def test_a_digest_of_the_catalog_is_that_of_its_own_version(tmp_path: Path) -> None:
    listed = yaml.safe_load((Path(catalog.__file__).parent / "components.yaml").read_text())["components"]["volcano"]
    (tmp_path / "components.yaml").write_text(yaml.safe_dump({"components": {"volcano": listed | {"digest": DIGEST}}}))
    site = catalog.load(tmp_path)
    one, other = (
        {release.id: release for release in catalog.resolve(load(overrides={"volcano": {"version": version}}), site)}["volcano"]
        for version in ("1.15.1", "1.15.0")
    )
    assert (one.digest, other.digest) == (DIGEST, "")
