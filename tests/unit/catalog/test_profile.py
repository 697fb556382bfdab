"""The node profile's layers: families, hardening, peer-to-peer, a site's own; and that the module knows every key."""

import ast
from pathlib import Path

import pytest
import yaml

from workflows import spec
from workflows.catalog import criteria, profile
from workflows.spec import SpecErrors

MODULE = Path(__file__).parents[3] / "playbooks/library/node_profile.py"
EXAMPLE = Path(__file__).parents[3] / "workflows/examples/h200-16.yaml"


def resolved(**changes: object) -> tuple[profile.Profile, profile.Profile]:
    written = yaml.load(EXAMPLE.read_text(), Loader=yaml.CSafeLoader)
    for section, more in changes.items():
        written[section] = {**written.get(section, {}), **more} if isinstance(more, dict) else more
    return profile.resolve(criteria.facts(spec.load(yaml.safe_dump(written))))


@pytest.mark.parametrize(
    ("distribution", "version", "manager", "loader", "package"),
    [
        ("ubuntu", "24.04", "apt", "update_grub", "conntrack"),
        ("debian", "12", "apt", "update_grub", "conntrack"),
        ("rhel", "9", "dnf", "grubby", "conntrack-tools"),
        ("rocky", "9", "dnf", "grubby", "iptables-nft or iptables"),
        ("almalinux", "9", "dnf", "grubby", "conntrack-tools"),
        ("sles", "15.7", "zypper", "grub2_mkconfig", "conntrack-tools"),
    ],
)
def test_every_distribution_of_a_spec_has_a_family(
    distribution: str, version: str, manager: str, loader: str, package: str
) -> None:
    general, _ = resolved(os={"distribution": distribution, "version": version}, rke2={"cni": ["flannel"]})
    assert (general["system"]["package_manager"], general["system"]["boot_loader"]) == (manager, loader)
    assert package in general["packages"]
    assert {"iptables", "iptables-nft or iptables"} & set(general["packages"]), "RKE2's parts and a reset ask for it on every host"
    assert general["sysctls"]["net.ipv4.ip_forward"] == "1"
    assert general == profile.of_system(distribution)


@pytest.mark.parametrize(("distribution", "word"), [("ubuntu", "all"), ("rocky", "--regenerate-all"), ("sles", "--regenerate-all")])
def test_the_initramfs_of_every_kernel_is_made_anew(distribution: str, word: str) -> None:
    """dracut alone makes that of the kernel that runs, update-initramfs that of the newest; the next boot may bring another."""
    assert word in profile.of_system(distribution)["system"]["initramfs"]


def test_hardening_and_peer_to_peer_add_their_layers() -> None:
    assert "system_users" not in resolved()[0]
    assert resolved(rke2={"profile": "cis"})[0]["system_users"] == {"etcd": "etcd user"}
    assert resolved()[1] == {"pcie_acs": "off", "kernel_parameters": ["iommu=pt"]}, "GPU machines with a fabric"


def test_virtual_functions_need_the_iommu_of_machines_with_gpus() -> None:
    general, special = resolved(fabric={"mode": "sriov", "ip_pool": {"subnet": "192.168.0.0/16"}}, os={"peer_to_peer": False})
    assert special == {"kernel_parameters": ["intel_iommu=on", "iommu=pt"]}
    assert "kernel_parameters" not in general


@pytest.mark.parametrize(("version", "has"), [("10", True), ("10.1", True), ("9.6", False)])
def test_a_layer_may_be_for_a_release_of_a_distribution(version: str, has: bool) -> None:
    packages = resolved(os={"distribution": "rocky", "version": version})[0]["packages"]
    assert ("kernel-modules-extra" in packages) == has


def test_where_selinux_enforces_rke2_needs_its_policy() -> None:
    policy = {"container-selinux", "rke2-selinux"}
    red_hat = {"distribution": "rocky", "version": "9"}
    assert policy <= set(resolved(os={**red_hat, "selinux": "enforcing"})[0]["packages"])
    assert not policy & set(resolved(os={**red_hat, "selinux": "permissive"})[0]["packages"])
    assert not policy & set(resolved(os={"selinux": "enforcing"})[0]["packages"]), "Ubuntu has none"


@pytest.mark.parametrize(("version", "major"), [("8.10", "8"), ("9", "9"), ("9.6", "9"), ("10.0", "10")])
def test_where_selinux_enforces_rke2s_own_repository_comes_before_its_policy(version: str, major: str) -> None:
    """As RKE2's install.sh writes it; nobody else has rke2-selinux."""
    red_hat = {"distribution": "almalinux", "version": version}
    entry = resolved(os={**red_hat, "selinux": "enforcing"})[0]["repositories"]["rke2-selinux"]
    assert (entry["id"], entry["path"]) == ("rancher-rke2-common-stable", "/etc/yum.repos.d/rancher-rke2.repo")
    assert entry["keys"] == {
        "name": "Rancher RKE2 Common (stable)",
        "baseurl": f"https://rpm.rancher.io/rke2/stable/common/centos/{major}/noarch",
        "enabled": "1",
        "gpgcheck": "1",
        "repo_gpgcheck": "1",
        "gpgkey": "https://rpm.rancher.io/public.key",
    }
    assert "repositories" not in resolved(os={**red_hat, "selinux": "permissive"})[0]


@pytest.mark.parametrize(
    ("cni", "ports"),
    [
        ("canal", ["8472/udp", "9099/tcp"]),
        ("calico", ["179/tcp", "4789/udp", "5473/tcp", "9098-9099/tcp"]),
        ("cilium", ["4240/tcp", "8472/udp"]),
        ("flannel", ["4789/udp"]),
    ],
)
def test_a_firewall_that_is_kept_is_not_stopped_and_lets_in_what_rke2_and_its_network_plugin_need(
    cni: str, ports: list[str]
) -> None:
    stopped, kept = (resolved(os={"firewall": said}, rke2={"cni": ["multus", cni]})[0] for said in ("stop", "keep"))
    assert {"firewalld.service", "ufw.service"} == set(stopped["services"]) - set(kept["services"])
    assert "firewall" not in stopped
    common = ["10250/tcp", "30000-32767/tcp"]
    assert kept["firewall"] == {"api": ["6443/tcp", "9345/tcp"], "servers": ["2379-2381/tcp"], "nodes": [*common, *ports]}


@pytest.mark.parametrize(
    ("cni", "ports"), [("canal", ["9099"]), ("calico", ["9099"]), ("cilium", ["4240", "9879"]), ("flannel", [])]
)
def test_nobody_may_listen_where_the_network_plugin_is_going_to(cni: str, ports: list[str]) -> None:
    general, _ = resolved(rke2={"cni": ["multus", cni]})
    assert [port for port in general["ports"] if port not in profile.of_system("ubuntu")["ports"]] == ports


def test_networkmanager_is_kept_from_canals_links_beside_what_others_keep_from_it() -> None:
    files = {file["path"]: file["content"] for file in resolved()[0]["files"]}
    lines = files["/etc/NetworkManager/conf.d/90-bringup-canal.conf"].splitlines()
    (said,) = [line for line in lines if line.startswith("unmanaged-devices")]
    assert said.startswith("unmanaged-devices+=interface-name:flannel*;interface-name:cali*;"), "`=` would end the list of others"


def test_peer_to_peer_follows_the_fabric_unless_the_spec_says_so() -> None:
    none = {"fabric": {"kind": "none"}, "validation": {}}
    assert resolved(**none)[1] == {}
    assert resolved(**none, os={"peer_to_peer": True})[1]["pcie_acs"] == "off"
    assert resolved(os={"peer_to_peer": False})[1] == {}
    gb200 = {
        "accelerator": {"product": "GB200"},
        "validation": {"nccl": {"intra_node_floor_gb_s": 500, "inter_node_floor_gb_s": 300}},
    }
    assert resolved(**gb200)[1] == {}, "its maker sets ACS otherwise"
    assert resolved(**gb200, os={"peer_to_peer": True})[1]["pcie_acs"] == "off"


def test_layers_merge_grow_and_remove_and_change_nobody() -> None:
    lower = {"sysctls": {"a": "1", "b": "2"}, "packages": ["curl"], "memlock": "unlimited"}
    upper = {"sysctls": {"b": None, "c": "3"}, "packages": ["curl", "socat"], "memlock": "64"}
    assert profile.merge_layers(lower, upper) == {"sysctls": {"a": "1", "c": "3"}, "packages": ["curl", "socat"], "memlock": "64"}
    assert lower == {"sysctls": {"a": "1", "b": "2"}, "packages": ["curl"], "memlock": "unlimited"}


def test_a_site_replaces_a_layer_and_adds_its_own(tmp_path: Path) -> None:
    (tmp_path / "site_lab.yaml").write_text(
        "criteria: {site: [lab-a]}\nprofile: {packages: [tmux], sysctls: {vm.swappiness: '1'}}\n"
    )
    known = profile.layers(tmp_path)
    facts = dict(criteria.facts(spec.load(EXAMPLE.read_text())))
    assert "tmux" not in profile.resolve(facts, known)[0]["packages"]
    general, _ = profile.resolve(facts | {"site": "lab-a"}, known)
    assert general["packages"][-1] == "tmux"
    assert general["sysctls"]["vm.swappiness"] == "1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("profile: {sysctl: {a: '1'}}\n", "a node profile has no key sysctl"),
        ("criteria: {distro: [debian]}\nprofile: {}\n", "distro is no dimension"),
        ("machines: servers\nprofile: {}\n", "machines"),
    ],
)
def test_a_layer_with_an_unknown_word_is_refused_by_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    with pytest.raises(SpecErrors, match=said):
        profile.layers(tmp_path)


def test_the_module_knows_every_key_and_the_catalog_every_key_of_the_module() -> None:
    tree = ast.parse(MODULE.read_text())
    documented = next(
        node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and ast.unparse(node.targets[0]) == "DOCUMENTATION"
    )
    options = yaml.safe_load(str(documented))["options"]["profile"]["suboptions"]
    assert set(options) - {"gpu", "gpu_groups"} == profile.KEYS
