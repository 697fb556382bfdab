"""Disks of a machine: what is mounted where, of which type, whether anything can be written there, and how much."""

import shutil
from pathlib import Path

import pytest
from ansible.module_utils import mount_table
from ansible.module_utils.nodeprofile import storage

from steps.stages.os_prep import gate_facts
from tests.unit.playbooks.machine import Machine

WHOLE = "/dev/vda1 / ext4 rw,relatime,errors=remount-ro 0 0\n"
OWN = "/dev/nvme1n1 /bringup-no-such-disk xfs rw,noatime,inode64 0 0\n"


def shown(root: Path, mounts: str) -> dict[str, tuple[str, str]]:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mounts").write_text(mounts)
    path = "/bringup-no-such-disk"
    rows = storage.mounts({path: ["xfs"]}, str(root)) + storage.disks(Machine({}), {"/": 0}, str(root))
    return {row["name"].split()[0]: (row["status"], row.get("why", "")) for row in rows}


def test_a_disk_of_its_own_and_a_root_that_can_be_written(tmp_path: Path) -> None:
    assert shown(tmp_path, WHOLE + OWN) == {"mount": ("ok", ""), "disk": ("ok", "")}


def test_a_folder_of_the_root_is_no_disk_of_its_own(tmp_path: Path) -> None:
    status, why = shown(tmp_path, WHOLE)["mount"]
    assert (status, why) == ("failed", "mount a disk of its own there before the run")


@pytest.mark.parametrize(("bad", "lines"), [("mount", (WHOLE, OWN)), ("disk", (OWN, WHOLE))])
def test_a_file_system_that_an_error_made_read_only_is_no_room(tmp_path: Path, bad: str, lines: tuple[str, str]) -> None:
    good, broken = lines
    found = shown(tmp_path, good + broken.replace("rw,", "ro,"))
    assert (found[bad][0], "Read-only file system" in found[bad][1]) == ("failed", True)
    assert {status for name, (status, _) in found.items() if name != bad} == {"ok"}


def test_of_two_that_are_mounted_over_each_other_the_later_counts(tmp_path: Path) -> None:
    assert shown(tmp_path, WHOLE + OWN.replace("rw,", "ro,") + OWN)["mount"][0] == "ok"


def test_a_mount_point_is_read_as_it_is_called(tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mounts").write_text(WHOLE + OWN.replace("such-disk", "such\\040dück"))
    (row,) = storage.mounts({"/bringup-no-such dück": ["xfs"]}, str(tmp_path))
    assert row["status"] == "ok"


@pytest.mark.parametrize(
    ("written", "path"), [("/a\\040b", "/a b"), ("/ü", "/ü"), ("/a\\134x41", "/a\\x41"), ("/a\\x41", "/a\\x41")]
)
def test_only_what_the_kernel_writes_in_octal_is_octal(written: str, path: str) -> None:
    assert mount_table.decode_path(written) == path


def test_what_rke2_has_filled_needs_a_reserve_alone(tmp_path: Path) -> None:
    (tmp_path / "etc/rancher/rke2").mkdir(parents=True)
    wanted = {str(tmp_path): shutil.disk_usage(tmp_path).free // storage.MIB + 10**6}
    (row,) = storage.disks(Machine({}), wanted, str(tmp_path))
    assert (row["status"], storage.is_used(Machine({}), wanted, str(tmp_path))) == ("failed", False)

    (tmp_path / "etc/rancher/rke2/config.yaml").touch()
    (row,) = storage.disks(Machine({}), wanted, str(tmp_path))
    least = storage.reserve(str(tmp_path), wanted[str(tmp_path)])
    assert row["want"] == f">= {least} MiB free, RKE2 being set up"
    assert row["status"] == ("ok" if int(row["after"].split()[0]) >= least else "failed"), "by what this disk has"
    assert storage.is_used(Machine({}), wanted, str(tmp_path))
    assert not storage.is_used(Machine({}), {str(tmp_path): 0}, str(tmp_path)), "nobody asks"


def test_the_reserve_is_what_the_gate_asks_for_and_never_more_than_before() -> None:
    total = shutil.disk_usage("/").total // storage.MIB
    assert storage.reserve("/", 10**9) == max(2048, total * 5 // 100)
    assert storage.reserve("/", 1) == 1
    theirs = (gate_facts.RESERVE_MIB, gate_facts.RESERVE_PERCENT)
    assert theirs == (storage.RESERVE_MIB, storage.RESERVE_PERCENT)
