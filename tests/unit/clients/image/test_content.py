"""A layer's digest tells every difference that matters, and none that does not."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from steps.nodeimage.layer import layer_content
from tests.unit.clients.image import trees


def test_path_time_and_order_of_making_do_not_matter(tmp_path: Path) -> None:
    one, other = trees.small(tmp_path / "a"), trees.small(tmp_path / "deep/er")
    shutil.move(other / "etc", other / "etc2")
    shutil.move(other / "etc2", other / "etc")
    os.utime(other / "etc/motd", (1, 1))
    assert layer_content.read(one) == layer_content.read(other)
    assert layer_content.outline(one) == layer_content.read(one).outline


CHANGES: dict[str, Callable[[Path], object]] = {
    "bytes of the same length": lambda tree: (tree / "etc/motd").write_text("hullo\n"),
    "longer": lambda tree: (tree / "etc/motd").write_text("hello hello\n"),
    "mode": lambda tree: (tree / "etc/motd").chmod(0o600),
    "link": lambda tree: ((tree / "usr/bin/link").unlink(), (tree / "usr/bin/link").symlink_to("walk")),
    "hard link": lambda tree: ((tree / "usr/bin/walk").unlink(), trees.write(tree / "usr/bin/walk", "#!/bin/sh\n", 0o755)),
    "whiteout": lambda tree: (tree / "etc/gone").unlink(),
    "opaque": lambda tree: os.removexattr(tree / "opt", layer_content.OPAQUE),
    "attribute": lambda tree: os.setxattr(tree / "etc/motd", "user.note", b"1"),
    "new file": lambda tree: trees.write(tree / "opt/new"),
    "kind": lambda tree: ((tree / "etc/motd").unlink(), (tree / "etc/motd").mkdir()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_difference_is_told(tmp_path: Path, change: str) -> None:
    one, other = trees.small(tmp_path / "a"), trees.small(tmp_path / "b")
    CHANGES[change](other)
    assert layer_content.read(one).digest != layer_content.read(other).digest


@pytest.mark.parametrize("change", ["longer", "mode", "whiteout", "new file", "kind"])
def test_outline_tells_what_needs_no_reading(tmp_path: Path, change: str) -> None:
    one, other = trees.small(tmp_path / "a"), trees.small(tmp_path / "b")
    CHANGES[change](other)
    assert layer_content.outline(one) != layer_content.outline(other)


def test_counts_a_file_with_two_names_once(tmp_path: Path) -> None:
    found = layer_content.read(trees.small(tmp_path / "a"))
    assert found.size == len("hello\n") + len("#!/bin/sh\n")
    assert found.files == 9


def test_names_that_are_no_text(tmp_path: Path) -> None:
    one, other = tmp_path / "a", tmp_path / "b"
    for tree, name in ((one, b"\xff"), (other, b"\xfe")):
        tree.mkdir()
        Path(os.fsdecode(os.fsencode(tree) + b"/" + name)).write_text("")
    assert layer_content.read(one).digest != layer_content.read(other).digest
