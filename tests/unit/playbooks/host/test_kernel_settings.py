"""Kernel modules through stand-ins for modprobe and modinfo, in a folder that stands for the root; sysctls that are no
less than what the machine has."""

import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.nodeprofile import convergence, kernel_settings, profile_files

from tests.unit.playbooks.machine import Machine

NEWER = "999.12.0-55.41.1.el10_0.x86_64"


class Kernel:
    """A stand-in for a kernel: modules that it has as files, those that are loaded, and those that are in use."""

    def __init__(self, root: Path, *known: str, loaded: tuple[str, ...] = (), used: tuple[str, ...] = ()) -> None:
        self.root, self.known, self.used = root, known, used
        self.machine = Machine({"modprobe": self.modprobe, "modinfo": self.modinfo})
        for name in loaded:
            self.folder(name).mkdir(parents=True)

    def folder(self, name: str) -> Path:
        return self.root / "sys/module" / name.replace("-", "_")

    def modinfo(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        if command[1] == "-k":
            return (0, "", "") if (self.root / f"lib/modules/{command[2]}/{command[3]}.ko").exists() else (1, "", "not found")
        return (0, "", "") if command[1] in self.known else (1, "", f"modinfo: ERROR: Module {command[1]} not found.")

    def modprobe(self, command: tuple[str, ...]) -> tuple[int, str, str]:
        name = command[-1]
        if name in self.used:
            return 1, "", f"modprobe: FATAL: Module {name} is in use."
        if command[1] == "--remove":
            self.folder(name).rmdir()
        else:
            self.folder(name).mkdir(parents=True)
        return 0, "", ""

    def install(self, release: str, *modules: str) -> None:
        """Another kernel, with these modules."""
        folder = self.root / "lib/modules" / release
        folder.mkdir(parents=True)
        for name in modules:
            (folder / f"{name}.ko").touch()

    def loaded(self, wanted: dict[str, str], *, rebooted: bool = False) -> dict[str, dict[str, Any]]:
        return {row["name"]: row for row in kernel_settings.modules(self.machine, wanted, str(self.root), rebooted=rebooted)}


def test_a_module_is_loaded_once(tmp_path: Path) -> None:
    node = Kernel(tmp_path, "br-netfilter")
    assert node.loaded({"br-netfilter": ""})["module br-netfilter"]["status"] == "changed"
    assert node.loaded({"br-netfilter": ""})["module br-netfilter"]["status"] == "ok"
    assert node.machine.said == [("modinfo", "br-netfilter"), ("modprobe", "br-netfilter")]


def test_what_is_built_in_is_there_and_what_the_kernel_lacks_is_unavailable(tmp_path: Path) -> None:
    node = Kernel(tmp_path)
    listed = tmp_path / "lib/modules" / os.uname().release / "modules.builtin"
    listed.parent.mkdir(parents=True)
    listed.write_text("kernel/fs/overlayfs/overlay.ko\n")
    (tmp_path / "proc/net").mkdir(parents=True)
    rows = node.loaded({"overlay": "", "nf_conntrack": "/proc/net", "ib_umad": "/sys/class/none"})
    assert {name: row["status"] for name, row in rows.items()} == {
        "module ib_umad": "unavailable",
        "module nf_conntrack": "ok",
        "module overlay": "ok",
    }
    assert "has no module ib_umad" in rows["module ib_umad"]["why"]


def test_a_module_that_must_not_be_there_goes_unless_it_is_in_use(tmp_path: Path) -> None:
    node = Kernel(tmp_path, loaded=("nouveau", "lockd"), used=("lockd",))
    gone, used, none = kernel_settings.blacklist(node.machine, ["nouveau", "lockd", "radeon"], str(tmp_path))
    assert (gone["status"], used["status"], none["status"]) == ("changed", "failed", "ok")
    assert "Module lockd is in use" in used["why"]
    assert kernel_settings.is_loaded("lockd", str(tmp_path))


WANTED = {"fs.inotify.max_user_watches": "1048576", "vm.max_map_count": "262144", "vm.overcommit_memory": "1", "vm.gone": "9"}


def running(root: Path, **values: str) -> str:
    """A kernel that runs with these values, by their names below vm."""
    for path in ("vm", "fs/inotify"):
        (root / "proc/sys" / path).mkdir(parents=True, exist_ok=True)
    (root / "proc/sys/fs/inotify/max_user_watches").write_text("192536\n")
    for name, value in values.items():
        (root / f"proc/sys/vm/{name}").write_text(f"{value}\n")
    return str(root)


@pytest.mark.parametrize(
    ("now", "wanted"), [("65530", "262144"), ("262144", "262144"), ("1048576", "1048576"), ("2147483642", "2147483642")]
)
def test_room_for_programs_is_never_made_less_now_or_by_the_next_boot(tmp_path: Path, now: str, wanted: str) -> None:
    root = running(tmp_path, max_map_count=now, overcommit_memory="2")
    values = kernel_settings.at_least_running(WANTED, root)
    assert values == WANTED | {"vm.max_map_count": wanted}, "other values are exact, and what the kernel lacks is its item's to say"
    kept = profile_files.boot_files({"memlock": "", "modules": {}, "blacklist": [], "sysctls": values, "files": []})
    (boot,) = [entry["content"] for entry in kept if entry["path"].startswith("/etc/sysctl.d/")]
    assert f"vm.max_map_count = {wanted}\n" in boot


def test_the_profile_of_a_machine_asks_for_no_less_than_it_has() -> None:
    now = Path("/proc/sys/vm/max_map_count").read_text().strip()
    said = {"sysctls": {"vm.max_map_count": "1"}, "gpu": {}, "gpu_groups": []}
    names = {"hostname": "", "address": "", "rebooted_from": "", "groups": []}
    assert convergence.machine_profile({"profile": said, **names})["sysctls"] == {"vm.max_map_count": now}


def test_check_mode_loads_nothing(tmp_path: Path) -> None:
    node = Kernel(tmp_path, "overlay")
    node.machine.check_mode = True
    assert node.loaded({"overlay": ""})["module overlay"]["status"] == "differs"
    assert node.machine.said == [("modinfo", "overlay")]


def test_a_module_that_came_with_a_newer_kernel_waits_for_its_reboot(tmp_path: Path) -> None:
    node = Kernel(tmp_path)
    node.install(os.uname().release)
    node.install(NEWER, "br_netfilter")
    row = node.loaded({"br_netfilter": ""})["module br_netfilter"]
    assert (row["status"], row["after"], row["why"]) == ("differs", "absent", f"the next boot brings it, with kernel {NEWER}")
    assert node.machine.reboots == [f"module br_netfilter: the next boot brings it, with kernel {NEWER}"]

    lost = node.loaded({"br_netfilter": ""}, rebooted=True)["module br_netfilter"]
    assert (lost["status"], lost["why"]) == (
        "failed",
        f"the reboot did not bring kernel {NEWER}, which has it: choose it in the boot loader",
    )


def test_an_older_kernel_or_a_newer_one_without_the_module_brings_nothing(tmp_path: Path) -> None:
    node = Kernel(tmp_path)
    node.install("2.6.32-9.el6", "br_netfilter")
    node.install(NEWER)
    assert node.loaded({"br_netfilter": ""})["module br_netfilter"]["status"] == "unavailable"
    assert node.machine.reboots == []
