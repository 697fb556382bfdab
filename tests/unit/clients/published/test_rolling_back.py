"""Rollback: one rename to a version that is whole, and the history says who."""

import json
from pathlib import Path

import pytest

from steps.clients.published import rolling_back
from steps.contract.image import publishing
from steps.contract.image.published import Switch
from steps.errors import BadTask, Refused
from tests.unit.clients.published.published_trees import KINDS, image, place, published, state, transport, wrong


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    for text in "abc":
        published(place(root), image(tmp_path / text, text))
    return root


@pytest.mark.parametrize("kind", KINDS)
def test_back_and_back_again(root: Path, kind: str, tmp_path: Path) -> None:
    with transport(kind, root) as way:
        was = state(root / "compute/versions")
        assert rolling_back.rollback(way, "compute", "", "ada").to.startswith("0002-")
        assert rolling_back.rollback(way, "compute", "", "ada").to.startswith("0001-")
        with pytest.raises(BadTask, match="no version before"):
            rolling_back.rollback(way, "compute", "", "ada")
        assert rolling_back.rollback(way, "compute", "3", "ada").to.startswith("0003-")
        assert state(root / "compute/versions") == was
    assert json.loads((root / "compute/history.jsonl").read_text().splitlines()[-1])["by"] == "ada"
    assert wrong(root) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_version_is_refused(root: Path, kind: str) -> None:
    broken = next((root / "compute/versions").glob("0002-*"))
    (broken / "root.squashfs").write_bytes(b"half")
    current = (root / "compute/current").readlink()
    with transport(kind, root) as way, pytest.raises(Refused, match=r"0002-\w+ is not whole: .*root\.squashfs has 4 bytes"):
        rolling_back.rollback(way, "compute", "", "ada")
    assert (root / "compute/current").readlink() == current


@pytest.mark.parametrize(("version", "sentence"), [("9", "has no version 9"), ("../../etc", "has no version"), ("0002", "")])
def test_versions_are_named_whole_or_by_number(root: Path, version: str, sentence: str) -> None:
    with transport("local", root) as way:
        if not sentence:
            assert rolling_back.rollback(way, "compute", version, "ada").to.startswith("0002-")
            return
        with pytest.raises(BadTask, match=sentence) as caught:
            rolling_back.rollback(way, "compute", version, "ada")
        assert "0001-" in caught.value.hint


def test_what_is_current_already_is_not_written_again(root: Path) -> None:
    was = state(root)
    with transport("local", root) as way:
        done = rolling_back.rollback(way, "compute", "3", "ada")
    assert done.to == done.before
    assert state(root) == was


@pytest.mark.parametrize(
    ("way", "current", "expected"),
    [
        ((), "", ""),
        (("1",), "1", ""),
        (("1", "2"), "2", "1"),
        (("1", "2", "1"), "1", ""),
        (("1", "2", "1", "3"), "3", "1"),
        (("1", "2", "3", "2", "4"), "4", "2"),
        (("1", "2"), "9", "2"),
    ],
)
def test_what_was_rolled_back_is_not_gone_back_to(way: tuple[str, ...], current: str, expected: str) -> None:
    assert publishing.previous([Switch(to=one) for one in way], current) == expected
