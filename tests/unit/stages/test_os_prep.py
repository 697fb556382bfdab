"""The stage os_prep as data: the profile that a spec resolves to, on which machines it holds, and what the gate wants to see."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.nodeprofile import profile_files

from steps.contract.task import MAX_BYTES, encode
from steps.runtime import gating
from steps.stages.os_prep.contract import NodesExpectation
from workflows import catalog, spec
from workflows.stages import os_prep
from workflows.stages.stage import Site, Stage

EXAMPLES = Path(__file__).parents[3] / "workflows/examples"
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAbcdefghijklmnopqrstuvwxyz0123456789ABCDEF ops@example.org"
UNSHOWN = {"system", "ports", "server_ports", "agent_ports", "time_servers", "gpu", "gpu_groups"}
"""Parts of the profile that are not items of a machine, or items that only some machines show."""
SAID = {
    "kernel_parameters": ["intel_iommu=on"],
    "hugepages": {"size": "1G", "count": 64},
    "dns": {"servers": ["10.10.0.53"], "search": ["cluster.example.org"]},
    "users": [{"name": "ops", "keys": [KEY], "sudo": True}],
    "interface_names": {"ibs1": "0000:18:00.0"},
    "routes": [{"to": "192.168.0.0/16", "device": "ibs1"}],
    "mounts": {"/var/lib/rancher": {"filesystem": ["xfs"]}},
    "selinux": "enforcing",
    "time_servers": ["ntp.example.org"],
}


def built(example: str = "h200-16", **changes: Any) -> Stage:
    written = yaml.load((EXAMPLES / f"{example}.yaml").read_text(), Loader=yaml.CSafeLoader)
    for section, more in changes.items():
        written[section] = {**written.get(section, {}), **more} if isinstance(more, dict) else more
    cluster = spec.load(yaml.safe_dump(written))
    releases = catalog.resolve(cluster, catalog.load())
    made = os_prep.build(Site(spec=cluster, machines=cluster.machines, releases={release.id: release for release in releases}))
    assert made is not None
    return made


def profile(stage: Stage) -> dict[str, Any]:
    found: dict[str, Any] = stage.steps[0].task.arguments["variables"]["os_prep_profile"]
    return found


def expected(stage: Stage) -> NodesExpectation:
    want = gating.find("os_prep/nodes").expect(stage.steps[0].task.expectations, ("gpu001",))
    assert isinstance(want, NodesExpectation)
    return want


def test_peer_to_peer_that_a_spec_without_gpus_asks_for_is_not_passed_over() -> None:
    assert "pcie_acs" not in profile(built("three-hosts"))
    stage = built("three-hosts", os={"peer_to_peer": True})
    assert (profile(stage)["pcie_acs"], profile(stage)["kernel_parameters"]) == ("off", ["iommu=pt"])
    assert {"PCIe ACS", "kernel parameter iommu=pt"} <= set(expected(stage).items)


@pytest.mark.parametrize(
    ("rke2", "asked"),
    [
        ({"version": "v1.35.7+rke2r1"}, True),
        ({"version": "v1.34.9+rke2r1"}, False),
        ({"version": "v1.35.7+rke2r1", "kubelet_args": {"fail-cgroupv1": "false"}}, False),
        ({"version": "v1.35.7+rke2r1", "kubelet_config": {"failCgroupV1": False}}, False),
        ({"version": "v1.35.7+rke2r1", "kubelet_config": {"failCgroupV1": True}}, True),
    ],
)
def test_the_gate_looks_at_control_groups_where_kubelets_need_version_2(rke2: dict[str, Any], asked: bool) -> None:
    assert expected(built("three-hosts", rke2=rke2)).cgroup_v2 is asked


def test_a_site_s_own_words_come_over_the_catalog_and_the_gate_wants_to_see_each() -> None:
    stage = built(os=SAID, rke2={"profile": "cis"}, fabric={"interfaces": ["ibs1"], "mtu": 4092})
    said = profile(stage)
    assert said["dns"] == SAID["dns"]
    assert said["users"] == SAID["users"]
    assert said["mounts"] == {"/var/lib/rancher": ["xfs"]}
    assert (said["selinux"], said["time_servers"]) == ("enforcing", ["ntp.example.org"])
    assert said["gpu"] == {
        "pcie_acs": "off",
        "kernel_parameters": ["iommu=pt", "intel_iommu=on", "hugepagesz=1G hugepages=64"],
        "hugepages": {"1G": 64},
        "links": {"names": ["ibs1"], "mtu": 4092},
        "interface_names": {"ibs1": "0000:18:00.0"},
        "routes": [{"to": "192.168.0.0/16", "device": "ibs1"}],
        "kernel_headers": True,
        "link_types": {"layer": "InfiniBand", "devices": ["15b3:1021"], "count": 8},
    }
    want = expected(stage)
    assert {"DNS", "SELinux", "user ops", "system user etcd", "mount /var/lib/rancher"} <= set(want.items)
    assert want.gpu_items == (
        "kernel parameter iommu=pt",
        "kernel parameter intel_iommu=on",
        "kernel parameter hugepagesz=1G hugepages=64",
        "hugepages 1G",
        "route 192.168.0.0/16",
        "name of 0000:18:00.0",
        "link ibs1",
        "MTU of *",
        "PCIe ACS",
        "kernel headers",
        "link type*",
    )
    assert len(encode(stage.steps[0].task)) < MAX_BYTES


@pytest.mark.parametrize(("system", "version"), [("debian", "12"), ("ubuntu", "24.04"), ("rocky", "9"), ("rocky", "10")])
@pytest.mark.parametrize("firewall", ["keep", "stop"])
def test_each_part_of_the_base_profile_is_expected_by_the_gate(system: str, version: str, firewall: str) -> None:
    stage = built("three-hosts", os={"distribution": system, "version": version, "firewall": firewall})
    said, want = profile(stage), expected(stage).items
    for key in said.keys() - UNSHOWN:
        alone = os_prep.proving_items({key: said[key]})
        assert alone or key == "files", key
        assert set(alone) <= set(want), key
    assert {f"package {name}" for name in said["packages"]} <= set(want)
    assert {f"sysctl {key}" for key in said["sysctls"]} <= set(want)
    assert {f"service {name}" for name in said["services"]} <= set(want)
    assert {"module overlay", "module nf_conntrack", "time service", "swap /etc/fstab"} <= set(want)
    assert len(encode(stage.steps[0].task)) < MAX_BYTES


def test_the_files_that_the_gate_expects_are_those_of_the_module() -> None:
    said = profile(built("three-hosts"))
    for key, pattern in os_prep.KEPT.items():
        parts: dict[str, Any] = {"modules": {}, "blacklist": [], "sysctls": {}, "memlock": "", "files": []}
        rows = profile_files.boot_files(parts | {key: said[key]})
        assert any(row["content"] and not row["needs"] and fnmatchcase(f"file {row['path']}", pattern) for row in rows), key


def test_small_huge_pages_come_without_a_reboot() -> None:
    gpu = profile(built(os={"hugepages": {"size": "2M", "count": 512}, "peer_to_peer": False}))["gpu"]
    assert {key: gpu[key] for key in gpu if key not in ("kernel_headers", "link_types")} == {
        "sysctls": {"vm.nr_hugepages": "512"},
        "hugepages": {"2M": 512},
    }


def test_interfaces_without_names_are_found_by_their_device_and_a_driver_of_the_operator_has_none_yet() -> None:
    assert profile(built(fabric={"mtu": 4092}))["gpu"]["links"] == {"devices": ["15b3:1021"], "mtu": 4092}
    assert "links" not in profile(built(fabric={"mtu": 4092, "driver": "operator"}))["gpu"]


def test_whole_devices_that_pods_are_given_are_told_where_interfaces_are_looked_at() -> None:
    whole = {"mode": "host_device", "ip_pool": {"subnet": "192.168.0.0/16"}, "device_ids": ["1021", "1023"]}
    for more in ({"fabric": whole | {"mtu": 4092}}, {"fabric": whole, "os": {"routes": SAID["routes"]}}):
        assert profile(built(**more))["gpu"]["given_away"] == ["15b3:1021", "15b3:1023"]
    assert profile(built(fabric=whole))["gpu"]["given_away"] == ["15b3:1021", "15b3:1023"], "their link types are looked at"
    for more in (
        {"fabric": whole | {"driver": "operator"}},
        {"fabric": {"mtu": 4092}},
        {"fabric": whole | {"mode": "sriov", "mtu": 4092}},
    ):
        assert "given_away" not in profile(built(**more))["gpu"]


def test_without_gpu_machines_the_fabric_is_everybody_s() -> None:
    stage = built("three-hosts", os={"kernel_parameters": ["nosmt"]})
    assert profile(stage)["kernel_parameters"] == ["nosmt"]
    assert "gpu" not in profile(stage)
    assert "kernel parameter nosmt" in expected(stage).items


@pytest.mark.parametrize("example", ["single-node", "h200-16", "multi-rack-232", "dra", "three-hosts"])
def test_the_plan_says_what_changes_and_the_task_stays_small(example: str) -> None:
    stage = built(example)
    assert len(encode(stage.steps[0].task)) < MAX_BYTES * 3 / 4
    (change,) = stage.changes
    assert ("PCIe ACS off" in change.what) == ("pcie_acs" in profile(stage).get("gpu", {}))


def test_a_machine_must_have_a_synchronized_clock_unless_the_spec_tolerates_that_it_has_no_time_service() -> None:
    assert expected(built()).clock_synchronized
    assert not expected(built(os={"tolerate": ["time *"]})).clock_synchronized
    assert expected(built(os={"tolerate": ["sysctl *"]})).clock_synchronized


def test_the_gate_knows_the_mode_of_selinux_that_the_plan_counts_on() -> None:
    red_hat = {"distribution": "rocky", "version": "9.5"}
    assert [expected(built(os=red_hat | more)).selinux for more in ({}, {"selinux": "enforcing"})] == ["", "enforcing"]


MIRROR = "https://mirror.example.org/el9"


@pytest.mark.parametrize(
    ("said", "keys"),
    [
        ({}, {"baseurl": "https://rpm.rancher.io/rke2/stable/common/centos/9/noarch", "repo_gpgcheck": "1"}),
        ({"baseurl": MIRROR}, {"baseurl": MIRROR, "gpgkey": "https://rpm.rancher.io/public.key", "gpgcheck": "1"}),
        (
            {"baseurl": MIRROR, "gpgkey": "file:///etc/pki/rancher", "repo_gpgcheck": False},
            {"baseurl": MIRROR, "gpgkey": "file:///etc/pki/rancher", "repo_gpgcheck": "0", "gpgcheck": "1"},
        ),
    ],
)
def test_the_repository_of_rke2s_policy_is_told_proven_and_undone(said: dict[str, Any], keys: dict[str, str]) -> None:
    red_hat = {"distribution": "rocky", "version": "9.5", "selinux": "enforcing", "rke2_repository": said}
    stage = built(os=red_hat)
    brought = profile(stage)["repositories"]["rke2-selinux"]["keys"]
    assert keys.items() <= brought.items()
    assert "repository of rke2-selinux" in expected(stage).items
    assert f"dnf repository of rke2-selinux ({keys['baseurl']})" in stage.changes[0].what
    assert "remove /etc/yum.repos.d/rancher-rke2.repo" in stage.rollback
    assert len(encode(stage.steps[0].task)) < MAX_BYTES


def test_a_site_whose_own_repositories_have_the_policy_gets_no_other() -> None:
    stage = built(os={"distribution": "rocky", "version": "9.5", "selinux": "enforcing", "rke2_repository": {"write": False}})
    assert "rke2-selinux" in profile(stage)["packages"]
    assert not profile(stage)["repositories"]
    assert not any("repository of" in name for name in expected(stage).items)
    assert "yum.repos.d" not in stage.rollback + stage.changes[0].what


@pytest.mark.parametrize("mode", ["enabled", "disabled"])
def test_apparmor_is_asked_for_and_proven(mode: str) -> None:
    stage = built(os={"apparmor": mode})
    assert profile(stage)["apparmor"] == mode
    assert "AppArmor" in expected(stage).items
    assert f"AppArmor {mode}" in stage.changes[0].what
    assert "AppArmor" not in expected(built()).items


def test_a_firewall_that_is_kept_knows_the_spec_s_networks_and_is_proven() -> None:
    stage = built(os={"firewall": "keep", "firewall_networks": ["10.0.0.0/8"]}, rke2={"cluster_cidr": "10.64.0.0/11"})
    said = profile(stage)["firewall"]
    assert (said["pods"], said["networks"]) == (["10.64.0.0/11", "10.43.0.0/16"], ["10.0.0.0/8"])
    assert "firewall" in expected(stage).items
    (change,) = stage.changes
    assert "what the cluster needs let in by a firewall that runs" in change.what
    assert "nm-cloud-setup stopped" in change.what
    assert "close 10250/tcp, 2379-2381/tcp, 30000-32767/tcp, 6443/tcp, 8472/udp, 9099/tcp, 9345/tcp in firewalld" in stage.rollback
    assert "10.64.0.0/11 and 10.43.0.0/16 from its zone trusted" in stage.rollback
    assert "firewalld" not in stage.rollback.partition("enable ")[2].partition(" again")[0]
    assert len(encode(stage.steps[0].task)) < MAX_BYTES


def test_rke2_s_default_route_is_asked_for_and_proven() -> None:
    stage = built()
    assert profile(stage)["default_route"] is True
    assert "default route" in expected(stage).items


@pytest.mark.parametrize(
    ("distribution", "version", "loader"),
    [
        ("debian", "12", "run update-grub"),
        ("rocky", "9.5", "--remove-args='iommu=pt nosmt'"),
        ("sles", "15.7", "grub2-mkconfig -o"),
    ],
)
def test_what_is_changed_can_be_undone_by_what_the_plan_says(distribution: str, version: str, loader: str) -> None:
    said = {**SAID, "kernel_parameters": ["nosmt"], "hugepages": None, "distribution": distribution, "version": version}
    stage = built(os=said)
    (change,) = stage.changes
    for word in (
        *("hostname", "/etc/hosts", "packages", "swap off (also in /etc/fstab)", "swap.target masked", "SELinux enforcing"),
        *("firewalld, nm-cloud-setup and ufw stopped", "kernel command line", "DNS", "time servers", "users"),
    ):
        assert word in change.what, word
    chrony = "/etc/chrony/chrony.conf" if distribution == "debian" else "/etc/chrony.conf"
    for word in (
        *("lines of /etc/hosts", "/etc/fstab", "unmask swap.target", "enable firewalld, nm-cloud-setup and ufw again", loader),
        *(f"{chrony}.before-bringup", "/etc/selinux/config", "/etc/resolv.conf", "reboot", "users and the hostname stay"),
    ):
        assert word in stage.rollback, word


def test_what_a_plan_leaves_alone_need_not_be_undone() -> None:
    stage = built("three-hosts")
    assert not any(word in stage.rollback for word in ("chrony", "grub", "selinux", "resolv"))


def test_drivers_that_operators_build_need_headers_and_a_kernel_that_takes_unsigned_modules() -> None:
    stage = built()
    assert expected(stage).built_drivers == ("the GPU Operator's NVIDIA driver",)
    assert (profile(stage)["gpu"]["kernel_headers"], "kernel headers" in expected(stage).gpu_items) == (True, True)
    on_host = built(accelerator={"driver": "host", "driver_version": "580.126.20"})
    assert expected(on_host).built_drivers == ()
    assert "kernel_headers" not in profile(on_host)["gpu"]
    precompiled = built(overrides={"gpu_operator": {"values": {"driver": {"usePrecompiled": True}}}})
    assert expected(precompiled).built_drivers == ()
    nics = built(fabric={"driver": "operator"}, overrides={"gpu_operator": {"values": {"driver": {"usePrecompiled": True}}}})
    assert expected(nics).built_drivers == ("the Network Operator's NIC driver",)


def test_the_link_type_is_that_of_the_fabric_and_of_its_rails() -> None:
    assert profile(built(fabric={"kind": "roce", "rails": ["mlx5_0"]}))["gpu"]["link_types"] == {
        "layer": "Ethernet",
        "devices": ["15b3:1021"],
        "count": 8,
        "rails": ["mlx5_0"],
    }
    assert "link_types" not in profile(built(fabric={"driver": "operator"}))["gpu"], "the ports do not exist yet"
    assert "link type*" in expected(built()).gpu_items


@pytest.mark.parametrize(
    "setting", [{"kubelet_args": {"resolv-conf": "/etc/site.conf"}}, {"kubelet_config": {"resolvConf": "/etc/site.conf"}}]
)
def test_a_resolv_conf_of_the_site_s_own_is_the_one_that_is_looked_at(setting: dict[str, Any]) -> None:
    assert profile(built(rke2=setting))["pod_resolv_conf"] == ["/etc/site.conf"]
    assert profile(built())["pod_resolv_conf"] == ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"]
