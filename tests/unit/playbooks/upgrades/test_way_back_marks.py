"""A server's record of its rollback to the release before, and the etcd snapshots that may be used for it."""

import json
import os
from pathlib import Path

import pytest
from ansible.module_utils.rke2 import rollback

OLD, NEW = "v1.35.7+rke2r1", "v1.36.1+rke2r1"


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return str(tmp_path / "rollback.json")


def begun(mark: str, step: str = rollback.BEGUN, to: str = OLD) -> None:
    rollback.write({"to": to, "left": NEW, "snapshot": "/s", "step": step}, mark)


def test_a_server_knows_how_far_it_is(mark: str) -> None:
    assert rollback.read_mark(OLD, NEW, mark)["step"] == ""
    begun(mark)
    assert rollback.read_mark(OLD, NEW, mark) == {"to": OLD, "left": NEW, "snapshot": "/s", "step": "begun"}
    assert (rollback.is_under_way(NEW, mark), rollback.is_under_way(OLD, mark)) == (False, True), "once the release was put back"
    begun(mark, rollback.DONE)
    assert (rollback.is_under_way(OLD, mark), rollback.is_done(OLD, mark)) == (False, True)
    assert rollback.forget(mark, reset=f"{mark}.set-back")
    assert not rollback.forget(mark, reset=f"{mark}.set-back")


def test_the_next_upgrade_saves_etcd_anew(tmp_path: Path, mark: str) -> None:
    """Be it to the same release and on the same day: a second rollback must not lose what was written since the first."""
    begun(mark)
    for name in ("saved-bringup-before-v1.36.1-rke2r1-20261101", "saved-bringup-before-v1.34.1-rke2r1-20261101"):
        (tmp_path / name).write_text("[]")
    assert rollback.forget(mark, str(tmp_path), f"{mark}.set-back")
    assert [path.name for path in tmp_path.iterdir()] == ["saved-bringup-before-v1.34.1-rke2r1-20261101"]


def test_a_mark_of_another_way_back_counts_for_nothing(mark: str) -> None:
    begun(mark, to="v1.34.1+rke2r1")
    assert rollback.read_mark(OLD, NEW, mark)["step"] == ""
    begun(mark, rollback.DONE)
    assert rollback.read_mark(OLD, NEW, mark)["step"] == "", "it was upgraded again since"
    Path(mark).write_text("{half")
    assert rollback.read_mark(OLD, NEW, mark)["step"] == ""
    Path(mark).write_text("[]")
    assert rollback.read_mark(OLD, NEW, mark)["step"] == ""


@pytest.mark.parametrize(
    ("installed", "newer"),
    [(NEW, True), ("v1.35.8+rke2r1", True), (OLD, False), ("v1.34.9+rke2r1", False), ("", False), ("odd", False)],
)
def test_only_a_newer_release_is_left(installed: str, newer: bool) -> None:
    assert rollback.is_newer(installed, OLD) is newer


def test_whole_snapshots_from_before_the_left_release_are_offered_the_newest_first(tmp_path: Path) -> None:
    folder, store = tmp_path / "snapshots", tmp_path / "store"
    folder.mkdir()
    store.mkdir()
    for name, at, marked in (
        ("bringup-before-v1.36.1-rke2r1-20261101-n000-1", 1000, True),
        ("bringup-before-v1.36.1-rke2r1-20261103-n000-2", 3000, True),
        ("bringup-before-v1.36.1-rke2r1-20261104-n000-3", 4000, False),
        ("bringup-during-v1.36.1-rke2r1-20261105-n000-4", 5000, True),
        ("bringup-before-v1.36.2-rke2r1-20261106-n000-5", 6000, True),
    ):
        (folder / name).write_text("etcd")
        os.utime(folder / name, (at, at))
        if marked:
            (store / f"saved-{name.rsplit('-', 2)[0]}").write_text(json.dumps([name]))
    (store / "saved-bringup-before-v1.36.1-rke2r1-20261107").write_text(json.dumps(["gone"]))
    offered = rollback.offered_snapshots(NEW, str(folder), str(store))
    assert [(Path(one["path"]).name, one["at"]) for one in offered] == [
        ("bringup-before-v1.36.1-rke2r1-20261103-n000-2", 3000.0),
        ("bringup-before-v1.36.1-rke2r1-20261101-n000-1", 1000.0),
    ]
    assert rollback.offered_snapshots("", str(folder), str(store)) == []


def test_a_reset_that_was_cut_off_is_done_again_and_one_that_ended_is_not(tmp_path: Path, mark: str) -> None:
    flag, done, resets = tmp_path / "reset-flag", str(tmp_path / "etcd-set-back"), []

    def reset(fault: str = "") -> None:
        resets.append(fault)
        flag.touch()  # as RKE2 does it, before its etcd is there
        if fault:
            raise TimeoutError(fault)

    def set_back(snapshot: str = "/s", fault: str = "") -> bool:
        return rollback.set_back(snapshot, lambda: reset(fault), str(tmp_path), done)

    with pytest.raises(TimeoutError):
        set_back(fault="etcd never came")
    assert [set_back(), set_back()] == [True, False]
    assert set_back("/newer"), "another snapshot"
    flag.unlink()
    assert set_back("/newer"), "RKE2 has started since, and written"
    with pytest.raises(TimeoutError):
        set_back("/s", fault="cut off")
    assert set_back("/newer"), "what was cut off has taken its place"
    begun(mark)
    assert rollback.forget(mark, str(tmp_path), done)
    assert set_back("/newer"), "the next way back begins anew"
    assert len(resets) == 7


def test_etcd_on_a_disk_of_its_own_is_not_set_back(tmp_path: Path) -> None:
    """RKE2 renames etcd's folder when it restores a snapshot: no mount can be renamed, and of a link only the link."""
    etcd = tmp_path / "db/etcd"
    etcd.mkdir(parents=True)
    assert rollback.etcd_obstacle(["/", str(tmp_path / "db"), str(tmp_path / "db/snapshots"), f"{etcd}-old"], str(etcd)) == ""
    assert rollback.etcd_obstacle(["/", str(etcd)], str(etcd)) == f"{etcd} is a disk of its own"
    assert rollback.etcd_obstacle(["/", f"{etcd}/member/wal"], str(etcd)) == f"{etcd}/member/wal is a disk of its own"
    etcd.rmdir()
    etcd.symlink_to("/data/etcd")
    assert rollback.etcd_obstacle(["/"], str(etcd)) == f"{etcd} is a link to /data/etcd"
    assert rollback.etcd_obstacle() == "", "this machine has no etcd on a disk of its own"


def test_a_server_that_is_cleared_keeps_its_snapshots_and_one_that_leads_joins_nobody(tmp_path: Path) -> None:
    database = tmp_path / "db"
    for name in ("etcd/member", "snapshots"):
        (database / name).mkdir(parents=True)
    (database / "snapshots/one").touch()
    (database / "reset-flag").touch()
    assert rollback.clear(str(database)) == ["etcd", "reset-flag"]
    assert (database / "snapshots/one").exists()
    assert rollback.clear(str(tmp_path / "none")) == []
    (tmp_path / "disk/member").mkdir(parents=True)
    (database / "etcd").symlink_to(tmp_path / "disk")
    assert rollback.clear(str(database)) == ["etcd"]
    assert list((database / "etcd").iterdir()) == [], "the site's own disk for etcd is used again"
    assert rollback.clear(str(database)) == []
    config = tmp_path / "config.yaml"
    config.write_text("# Made by bringup.\ncni: canal\nserver: https://10.0.0.1:9345\ntls-san: [a]\n")
    assert rollback.join_nobody(str(config))
    assert config.read_text() == "# Made by bringup.\ncni: canal\ntls-san: [a]\n"
    assert not rollback.join_nobody(str(config))
