"""Swap goes now and from /etc/fstab, through a stand-in for swapoff in a folder that stands for the root."""

from pathlib import Path

import pytest
from ansible.module_utils.nodeprofile import profile_files

from tests.unit.playbooks.machine import Machine

HEAD = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
FSTAB = "UUID=1 / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n# /old none swap sw 0 0\n/dev/sdb1 /swap xfs defaults 0 2\n"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    (tmp_path / "proc").mkdir()
    (tmp_path / "etc").mkdir()
    (tmp_path / "proc/swaps").write_text(f"{HEAD}/swap.img file\t\t4194300\t\t0\t\t-2\n")
    (tmp_path / "etc/fstab").write_text(FSTAB)

    def swapoff(command: tuple[str, ...]) -> tuple[int, str, str]:
        assert command == ("swapoff", "--all")
        (tmp_path / "proc/swaps").write_text(HEAD)
        return 0, "", ""

    return Machine({"swapoff": swapoff}, root=tmp_path)


def states(machine: Machine) -> list[str]:
    return [row["status"] for row in profile_files.swap(machine, True, str(machine.root))]


def test_swap_is_turned_off_once_and_does_not_come_back(machine: Machine, tmp_path: Path) -> None:
    assert states(machine) == ["changed", "changed"]
    assert (tmp_path / "etc/fstab").read_text() == FSTAB.replace("/swap.img", "# bringup: /swap.img")
    assert states(machine) == ["ok", "ok"]
    assert len(machine.said) == 1


def test_pages_that_fit_nowhere_else_are_told_and_fstab_is_changed_all_the_same(machine: Machine) -> None:
    machine.tools["swapoff"] = lambda _: (255, "", "swapoff: /swap.img: swapoff failed: Cannot allocate memory")
    now, listed = profile_files.swap(machine, True, str(machine.root))
    assert (now["status"], listed["status"]) == ("failed", "changed")
    assert "Cannot allocate memory" in now["why"]


def test_check_mode_and_a_profile_that_allows_swap_change_nothing(machine: Machine, tmp_path: Path) -> None:
    machine.check_mode = True
    assert states(machine) == ["differs", "differs"]
    assert profile_files.swap(machine, False, str(tmp_path)) == []
    assert machine.said == []
    assert (tmp_path / "etc/fstab").read_text() == FSTAB
