"""Limits of a machine that no setting lifts: modules, control groups, processor, GPUs without addresses, inodes, file systems."""

import os
from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import machine_limits, storage

GPU = "sys/bus/pci/devices/0000:3b:00.0"
FLAGS = "flags\t\t: fpu sse sse2 ssse3 cx16 sse4_1 sse4_2 popcnt lahf_lm avx\n"
GROUPS = (
    "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t80\t1\ncpuset\t0\t80\t1\nmemory\t0\t80\t{memory}\nnet_cls\t0\t80\t0\n"
)
BARS = """\
0x00000000c8000000 0x00000000c8ffffff 0x0000000000040200
{start} {end} {flags}
0x0000000000000000 0x0000000000000000 0x0000000000000000
"""
PLACED = ("0x000003a000000000", "0x000003bfffffffff", "0x000000000014220c")
UNPLACED = ("0x0000000000000000", "0x0000001fffffffff", "0x000000000014220c")
MARKED = ("0x000003a000000000", "0x000003bfffffffff", "0x000000002014220c")


def written(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def read(root: Path, *, gpus: bool = True) -> dict[str, tuple[str, str]]:
    rows = machine_limits.limits(gpus, str(root))
    return {row["name"]: (row["status"], row.get("before", "")) for row in rows}


def gpu(root: Path, driver: str = "", bar: tuple[str, str, str] = PLACED) -> None:
    written(root, f"{GPU}/vendor", "0x10de\n")
    written(root, f"{GPU}/class", "0x030200\n")
    written(root, f"{GPU}/resource", BARS.format(start=bar[0], end=bar[1], flags=bar[2]))
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
        (root / GPU / "driver").symlink_to(f"../../drivers/{driver}")


@pytest.mark.parametrize("driver", ["", "nvidia"])
def test_healthy_machine_has_no_limit(tmp_path: Path, driver: str) -> None:
    gpu(tmp_path, driver)
    written(tmp_path, "proc/cpuinfo", FLAGS)
    written(tmp_path, "proc/cgroups", GROUPS.format(memory=1))
    written(tmp_path, "proc/sys/kernel/modules_disabled", "0\n")
    assert read(tmp_path) == {}


def test_machine_of_another_architecture_or_kernel_has_no_limit(tmp_path: Path) -> None:
    written(tmp_path, "proc/cpuinfo", "CPU implementer\t: 0x41\nFeatures\t: fp asimd\n")
    written(tmp_path, "proc/cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpu\t0\t80\t1\n")
    assert read(tmp_path) == {}


def test_kernel_that_takes_no_modules(tmp_path: Path) -> None:
    written(tmp_path, "proc/sys/kernel/modules_disabled", "1\n")
    assert read(tmp_path) == {"module loading": ("unavailable", "locked")}
    written(tmp_path, "sys/module/nvidia/refcnt", "8\n")
    assert read(tmp_path) == {}


def test_controller_that_is_switched_off(tmp_path: Path) -> None:
    written(tmp_path, "proc/cgroups", GROUPS.format(memory=0))
    assert read(tmp_path) == {"cgroup controller memory": ("failed", "disabled")}


def test_virtual_machine_with_an_old_processor(tmp_path: Path) -> None:
    written(tmp_path, "proc/cpuinfo", FLAGS.replace(" ssse3", "").replace(" popcnt", ""))
    assert read(tmp_path) == {"processor": ("failed", "without popcnt, ssse3")}


@pytest.mark.parametrize("gpus", [True, False])
def test_gpu_that_is_held_for_a_virtual_machine(tmp_path: Path, gpus: bool) -> None:
    gpu(tmp_path, "vfio-pci")
    assert read(tmp_path, gpus=gpus) == ({"gpu 0000:3b:00.0": ("unavailable", "held by vfio-pci")} if gpus else {})


@pytest.mark.parametrize("bar", [UNPLACED, MARKED])
def test_gpu_whose_memory_has_no_address(tmp_path: Path, bar: tuple[str, str, str]) -> None:
    gpu(tmp_path, bar=bar)
    assert read(tmp_path) == {"gpu 0000:3b:00.0": ("failed", "BAR 1 without one")}


@pytest.mark.parametrize(("files", "available", "percent"), [(1000, 49, 4), (1000, 1000, 100), (0, 0, None)])
def test_share_of_free_inodes(files: int, available: int, percent: int | None) -> None:
    assert storage.inodes_percent(os.statvfs_result((4096, 4096, 9, 9, 9, files, available, available, 0, 255))) == percent


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("nfs4", ["exec /var/lib/rancher", "images /var/lib/rancher"]),
        ("fuse.glusterfs", ["exec /var/lib/rancher", "images /var/lib/rancher"]),
        ("xfs", ["exec /var/lib/rancher"]),
        ("tmpfs", ["exec /var/lib/rancher"]),
    ],
)
def test_images_lie_on_a_local_file_system(tmp_path: Path, kind: str, names: list[str]) -> None:
    written(tmp_path, "proc/self/mounts", f"/dev/vda1 / ext4 rw 0 0\nsource /var {kind} rw 0 0\n")
    assert [row["name"] for row in storage.executable(["/var/lib/rancher"], str(tmp_path))] == names
