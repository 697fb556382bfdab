"""The repository of a package that no distribution has: written before packages, unless the site or the machine has it already."""

from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import convergence, facts, os_packages
from ansible.module_utils.nodeprofile.item import NodeAccess

from tests.unit.playbooks.library import loaded
from tests.unit.playbooks.machine import Machine, Module

INSTALL_SH = """# Made by bringup.
[rancher-rke2-common-stable]
baseurl=https://rpm.rancher.io/rke2/stable/common/centos/9/noarch
enabled=1
gpgcheck=1
gpgkey=https://rpm.rancher.io/public.key
name=Rancher RKE2 Common (stable)
repo_gpgcheck=1
"""
"""The section `common` of the repository file that RKE2's install.sh writes, with its keys in order."""
module = loaded("node_profile")
KEYS = dict(row.split("=", 1) for row in INSTALL_SH.splitlines() if "=" in row)


def wanted(folder: Path, **keys: str) -> dict[str, Any]:
    said = {
        "id": "rancher-rke2-common-stable",
        "path": str(folder / "rancher-rke2.repo"),
        "unless": str(folder / "rancher-rke2*.repo"),
        "keys": {**KEYS, **keys},
    }
    return {"rke2-selinux": said}


def bare(root: Path, *, installed: bool = False) -> Machine:
    return Machine({"rpm": lambda _: (0 if installed else 1, "", "")}, root=root)


def test_it_is_written_as_rke2s_own_script_does_and_follows_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "rancher-rke2.repo"
    mirror = "https://mirror.example.org/rke2"
    for keys, status in (({}, "changed"), ({}, "ok"), ({"baseurl": mirror}, "changed"), ({"baseurl": mirror}, "ok")):
        (row,) = os_packages.repositories(NodeAccess(Module()), wanted(tmp_path, **keys))
        assert (row["name"], row["status"]) == ("repository of rke2-selinux", status), row
        assert path.read_text() == INSTALL_SH.replace(KEYS["baseurl"], keys.get("baseurl", KEYS["baseurl"]))


@pytest.mark.parametrize("name", ["rancher-rke2.repo", "rancher-rke2-common.repo", "rancher-rke2-1-35-stable.repo"])
def test_a_file_of_the_site_stays_and_no_second_one_comes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("[mirror]\n")
    machine = bare(tmp_path)
    (row,) = os_packages.repositories(machine, wanted(tmp_path))
    assert (row["status"], row["after"]) == ("ok", f"{tmp_path / name}, which is not bringup's")
    assert ([one.name for one in tmp_path.iterdir()], machine.written) == ([name], {})


def test_a_machine_that_has_the_package_needs_none(tmp_path: Path) -> None:
    (row,) = os_packages.repositories(bare(tmp_path, installed=True), wanted(tmp_path))
    assert (row["status"], list(tmp_path.iterdir())) == ("ok", [])


def test_check_mode_says_that_it_lacks_and_writes_nothing(tmp_path: Path) -> None:
    machine = bare(tmp_path)
    machine.check_mode = True
    (row,) = os_packages.repositories(machine, wanted(tmp_path))
    assert (row["status"], list(tmp_path.iterdir())) == ("differs", [])


def test_a_release_of_which_none_is_known_asks_the_site(tmp_path: Path) -> None:
    (row,) = os_packages.repositories(bare(tmp_path), wanted(tmp_path, baseurl=""))
    assert (row["status"], "os.rke2_repository.baseurl" in row["why"]) == ("failed", True)
    assert os_packages.repositories(bare(tmp_path), {}) == []


def test_it_comes_before_packages_are_looked_at(tmp_path: Path) -> None:
    part = {name: ([] if kind in ("list", "rows") else {}) for kind in ("list", "rows", "dict") for name in module.KINDS[kind]}
    words = dict.fromkeys(("memlock", "selinux", "apparmor", "pcie_acs"), "")
    system = {"ids": [facts.os_release()["ID"]], "package_manager": "dnf"}
    flags = dict.fromkeys(module.KINDS["bool"], False)
    profile = {**part, **words, **flags, "gpu": {}, "gpu_groups": [], "system": system}
    profile |= {"packages": ["rke2-selinux"], "repositories": wanted(tmp_path)}
    machine = bare(tmp_path)
    machine.check_mode = True
    told = {"profile": profile, "groups": [], "hostname": "", "address": "", "rebooted_from": ""}
    rows = convergence.settle_all(machine, convergence.machine_profile(told))
    asked = [command[1:] for command in machine.said if command[0] == "rpm"]
    assert asked[0] == ("--query", "rke2-selinux")
    assert asked[1][:2] == ("--query", "--queryformat")
    names = [row["name"] for row in rows]
    assert names.index("repository of rke2-selinux") < names.index("package rke2-selinux")
