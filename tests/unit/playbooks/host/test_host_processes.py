"""Processes on a host, read from a folder that stands for /proc: slurmd, users, and processes that are nobody's work."""

import os
from pathlib import Path
from typing import Any

import pytest

from tests.unit.playbooks.library import loaded

LOGIN, BOOT = 1000, "2a6c0b4e-0000-4000-8000-000000000001"
INSTALLATION = {"boot": BOOT, "system": "", "volatile": False}


def observed(proc: Path) -> dict[str, Any]:
    """Return the observation of processes below a folder, and of the files in `root` below it."""
    (proc / "sys/kernel/random").mkdir(parents=True, exist_ok=True)
    (proc / "sys/kernel/random/boot_id").write_text(f"{BOOT}\n")
    return dict(loaded("host_processes").observe(str(proc), LOGIN, str(proc / "root")))


def process(proc: Path, pid: int, name: str, uid: int, cgroup: str = "/user.slice") -> None:
    folder = proc / str(pid)
    folder.mkdir()
    (folder / "comm").write_text(f"{name}\n")
    (folder / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "cgroup").write_text(f"0::{cgroup}\n")


def test_users_are_counted_and_slurmd_is_seen(tmp_path: Path) -> None:
    process(tmp_path, 1, "systemd", 0)
    process(tmp_path, 40, "slurmd", 0, "/system.slice/slurmd.service")
    process(tmp_path, 41, "python3", 4000000001)
    process(tmp_path, 42, "mpirun", 4000000001)
    (tmp_path / "self").mkdir()
    (tmp_path / "43").mkdir()  # has ended meanwhile
    assert observed(tmp_path) == {"slurmd": True, "users": {"4000000001": 2}, "rke2": False, **INSTALLATION}


@pytest.mark.parametrize(
    ("name", "uid", "cgroup"),
    [
        ("bash", LOGIN, "/user.slice"),
        ("node_exporter", 999, "/system.slice"),
        ("nfsd", 65534, "/system.slice"),
        ("worker", 61500, "/system.slice/dynamic.service"),
        ("systemd", 1001, "/user.slice"),
        ("(sd-pam)", 1001, "/user.slice"),
        ("workflow-contro", 8737, "/kubepods.slice/kubepods-burstable.slice/pod"),
    ],
)
def test_nobody_works_in_services_in_pods_and_in_this_login(tmp_path: Path, name: str, uid: int, cgroup: str) -> None:
    process(tmp_path, 7, name, uid, cgroup)
    assert observed(tmp_path) == {"slurmd": False, "users": {}, "rke2": False, **INSTALLATION}


@pytest.mark.parametrize("path", ["var/lib/rancher/rke2/server/db", "var/lib/rancher/rke2/agent/kubelet.kubeconfig"])
def test_a_node_of_rke2_is_known_by_its_data(tmp_path: Path, path: str) -> None:
    (tmp_path / "root/var/lib/rancher/rke2/agent/images").mkdir(parents=True)  # an image of the OS may bring these
    assert not observed(tmp_path)["rke2"]
    (tmp_path / "root" / path).mkdir(parents=True)
    assert observed(tmp_path)["rke2"]


def test_a_boot_id_may_be_hidden(tmp_path: Path) -> None:
    assert loaded("host_processes").observe(str(tmp_path), LOGIN, str(tmp_path))["boot"] == ""


def test_a_node_of_rke2_is_known_by_its_process(tmp_path: Path) -> None:
    process(tmp_path, 7, "rke2", 0)
    assert observed(tmp_path)["rke2"]


def test_an_installation_is_known_by_the_file_of_its_machine_id(tmp_path: Path) -> None:
    file = tmp_path / "root/etc/machine-id"
    file.parent.mkdir(parents=True)
    for text in ("", "uninitialized\n"):
        file.write_text(text)
        assert observed(tmp_path)["system"] == ""
    file.write_text("0123\n")
    before = observed(tmp_path)["system"]
    assert before.startswith("0123 ")
    assert observed(tmp_path)["system"] == before, "a boot leaves the file as it is"
    # an installer that unpacks an image sets the time of the archive, and the id may come from the firmware
    (file.parent / "unpacked").write_text("0123\n")
    stat = file.stat()
    os.utime(file.parent / "unpacked", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    (file.parent / "unpacked").rename(file)
    assert observed(tmp_path)["system"] != before


@pytest.mark.parametrize(("kind", "volatile"), [("ext4", False), ("xfs", False), ("overlay", True), ("tmpfs", True)])
def test_a_root_in_memory_is_seen(tmp_path: Path, kind: str, volatile: bool) -> None:
    process(tmp_path, 1, "systemd", 0)
    (tmp_path / "1/mounts").write_text(f"rootfs / rootfs rw 0 0\n/dev/root / {kind} rw 0 0\ntmpfs /run tmpfs rw 0 0\n")
    assert observed(tmp_path)["volatile"] is volatile
