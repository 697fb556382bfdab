"""A snapshot of etcd counts once the command that made it has ended well, whatever a killed one left."""

from collections.abc import Callable
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import etcd_snapshots

NAME = "bringup-before-v1.36.1"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "snapshots").mkdir()
    return tmp_path / "snapshots"


def writes(folder: Path, *names: str, code: int = 0) -> Callable[[], tuple[int, str]]:
    """A stand-in for RKE2's command: leaves these files, and ends with a code."""

    def run() -> tuple[int, str]:
        for name in names:
            (folder / name).write_text("x")
        return code, "no space left" if code else ""

    return run


def saved(folder: Path) -> list[str]:
    found: list[str] = etcd_snapshots.complete_files(NAME, str(folder), str(folder.parent))
    return found


def save(folder: Path, run: Callable[[], tuple[int, str]]) -> list[str]:
    found: list[str] = etcd_snapshots.save(NAME, run, str(folder), str(folder.parent))
    return found


def test_a_snapshot_is_made_once(folder: Path) -> None:
    assert saved(folder) == []
    made = save(folder, writes(folder, f"{NAME}-sv1-17000"))
    assert made == saved(folder) == [f"{NAME}-sv1-17000"]


@pytest.mark.parametrize("left", [f"{NAME}-sv1-16000.part", f"{NAME}-sv1-16000"])
def test_what_a_killed_run_left_counts_for_nothing(folder: Path, left: str) -> None:
    (folder / left).write_text("half")
    assert saved(folder) == []
    assert save(folder, writes(folder, f"{NAME}-sv1-17000")) == [f"{NAME}-sv1-17000"]
    assert not list(folder.glob("*.part"))


def test_a_file_of_the_same_name_is_known_by_its_time(folder: Path) -> None:
    (folder / NAME).write_text("half")
    assert save(folder, writes(folder, NAME)) == [NAME]


def test_a_snapshot_that_is_gone_is_made_again(folder: Path) -> None:
    save(folder, writes(folder, f"{NAME}-sv1-17000"))
    (folder / f"{NAME}-sv1-17000").unlink()
    assert saved(folder) == []


@pytest.mark.parametrize(
    ("names", "code", "said"), [((f"{NAME}-1.part",), 1, "no space left"), ((), 0, "ended with 0 and left no snapshot")]
)
def test_a_command_that_did_not_save_is_told(folder: Path, names: tuple[str, ...], code: int, said: str) -> None:
    with pytest.raises(etcd_snapshots.SnapshotFailed, match=said):
        save(folder, writes(folder, *names, code=code))
    assert saved(folder) == []
