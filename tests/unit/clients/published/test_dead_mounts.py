"""A mount that does not answer is told as such by a session: nothing is taken for missing, changed or lost for its sake."""

import os
from pathlib import Path

import pytest

from steps.errors import StoreBusy, Unreachable
from tests.unit.clients.published.published_trees import image, place, published, transport

STALE, BROKEN, LATE = "Stale file handle", "Input/output error", "Connection timed out"
REFUSALS = {
    "the tree's own folder": ("ls", "*' .'", BROKEN),
    "the image's versions": ("ls", "*/versions", LATE),
    "who has the lock": ("ls", "*/incoming", STALE),
    "a file that was written": ("stat", "*%s*/version/vmlinuz", BROKEN),
    "a folder that is flushed": ("sync", "*/versions", STALE),
    "what gets a name": ("mv", "*/versions/*", LATE),
}
"""A program, what it is told then, as a pattern of the shell, and what it says."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    published(place(tmp_path / "tree"), image(tmp_path / "a", "a"))
    image(tmp_path / "b", "b")
    return tmp_path / "tree"


def refusing(folder: Path, name: str, words: str, why: str) -> str:
    """A search path with a program before all others that refuses where it is told such words."""
    folder.mkdir()
    real = next(path for one in os.environ["PATH"].split(":") if (path := Path(one, name)).exists())
    script = f"""#!/bin/sh
case "$*" in {words}) echo "{name}: cannot do that: {why}" >&2; exit 1 ;; esac
exec {real} "$@"
"""
    (folder / name).write_text(script)
    (folder / name).chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("what", REFUSALS)
def test_what_does_not_answer_is_named_and_nothing_is_published(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    current = os.readlink(root / "compute/current")
    with monkeypatch.context() as patch:
        patch.setenv("PATH", refusing(tmp_path / "bin", *REFUSALS[what]))
        with pytest.raises(StoreBusy, match=REFUSALS[what][2]) as caught:
            published(place(root), tmp_path / "b", "shell")
    assert "its mount went away" in caught.value.hint
    assert os.readlink(root / "compute/current") == current
    assert len(published(place(root), tmp_path / "b", "shell").versions) == 2


def test_a_root_that_does_not_answer_is_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", refusing(tmp_path / "bin", "stat", "*/gone/.", STALE))
    with pytest.raises(StoreBusy, match=STALE), transport("shell", tmp_path / "gone"):
        pass


def test_a_file_that_cannot_be_read_to_its_end_ends_the_session(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So many bytes of it were promised."""
    monkeypatch.setenv("PATH", refusing(tmp_path / "bin", "head", "*", STALE))
    with transport("shell", root) as way, pytest.raises(Unreachable, match=STALE):
        way.look("compute")
