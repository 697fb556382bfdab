"""A squashfs has an image's own extended attributes; where its program cannot leave others out, that is said."""

import os
import subprocess
from pathlib import Path

import pytest

from steps.nodeimage.files import root_packing
from tests.unit.clients.image import trees

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can write what a kernel with SELinux does by itself")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    trees.write(tmp_path / "root/usr/bin/ping", "x")
    os.setxattr(tmp_path / "root/usr/bin/ping", "user.note", b"x")
    return tmp_path / "root"


@pytest.fixture
def labelled(root: Path) -> Path:
    for path in (root, *root.rglob("*")):
        os.setxattr(path, "security.selinux", b"system_u:object_r:container_file_t:s0:c1,c2")
    return root


def version(said: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for mksquashfs that says a version."""
    trees.write(folder / "mksquashfs", f"#!/bin/sh\necho 'mksquashfs version {said}'\n", 0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


@needs_root
@pytest.mark.parametrize("said", ["4.6 (2023/03/25)", "4.6.1 (2023/03/25)", "4.7.2 (2025/09/09)", "5.0"])
def test_one_that_can_choose_takes_the_own_alone(
    said: str, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version(said, tmp_path / "bin", monkeypatch)
    assert root_packing.attribute_words(labelled) == ["-xattrs-include", r"^(user\.|security\.capability$)"]
    assert not capsys.readouterr().err


@needs_root
@pytest.mark.parametrize("said", ["4.4 (2019/08/29)", "4.5.1 (2022/03/17)"])
def test_one_that_cannot_says_what_it_takes(
    said: str, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version(said, tmp_path / "bin", monkeypatch)
    assert root_packing.attribute_words(labelled) == ["-xattrs"]
    told = capsys.readouterr().err
    assert f"mksquashfs {said.split()[0]} packs what this machine's kernel writes to files (security.selinux)" in told


def test_an_unlabelled_root_is_packed_without_a_word(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = root_packing.attribute_words(root)
    assert not capsys.readouterr().err
    read = root.with_name("read")
    subprocess.run(["mksquashfs", root, root.with_name("out"), "-quiet", "-no-progress", *words], check=True)
    subprocess.run(["unsquashfs", "-quiet", "-no-progress", "-dest", read, root.with_name("out")], check=True)
    assert os.listxattr(read / "usr/bin/ping") == ["user.note"]
