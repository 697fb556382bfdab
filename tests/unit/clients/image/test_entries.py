"""An entry appears whole by one rename, is made once, and what a kill left of it is removed."""

import threading
from pathlib import Path

import pytest

from steps.nodeimage.store import store_entries


def make(parent: Path) -> bool:
    with store_entries.make_entry(parent, "key") as folder:
        if folder is None:
            return False
        (folder / "one").write_text("1")
        assert not (parent / "key").exists()
    return True


def test_is_made_once(tmp_path: Path) -> None:
    assert [make(tmp_path), make(tmp_path)] == [True, False]
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["one"]


def test_side_by_side_one_makes_it_and_the_others_find_it(tmp_path: Path) -> None:
    made: list[bool] = []
    threads = [threading.Thread(target=lambda: made.append(make(tmp_path))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 7 + [True]


def test_one_that_is_not_as_wanted_is_replaced_by_a_whole_one(tmp_path: Path) -> None:
    make(tmp_path)
    with store_entries.make_entry(tmp_path, "key", good=lambda place: not (place / "one").exists()) as folder:
        assert folder is not None
        (folder / "two").write_text("2")
        assert (tmp_path / "key/one").exists(), "it stays until then"
    assert [path.name for path in (tmp_path / "key").iterdir()] == ["two"]
    assert [path.name for path in tmp_path.iterdir() if not path.name.endswith(".lock")] == ["key"]


def fail(parent: Path) -> None:
    with store_entries.make_entry(parent, "key") as folder:
        assert folder is not None
        (folder / "one").write_text("1")
        _ = 1 / 0


def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        fail(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".key.lock"]


def test_what_a_kill_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".key.part99").mkdir()
    (tmp_path / ".key.part99/half").write_text("x")
    (tmp_path / ".other.part99").mkdir()
    assert make(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".key.lock", ".other.part99", "key"]


def test_taken_away_it_can_be_made_again(tmp_path: Path) -> None:
    make(tmp_path)
    store_entries.remove_entry(tmp_path / "key")
    assert [path.name for path in tmp_path.iterdir()] == [".key.lock"]
    assert make(tmp_path)


def test_what_is_not_there_can_be_held_and_is_made_by_nobody(tmp_path: Path) -> None:
    with store_entries.hold_entry(tmp_path / "none/key"):
        assert list(tmp_path.iterdir()) == []
