"""Normalising a layer removes what varies between builds or equals the layers below, and keeps what hides or replaces a file."""

import os
import py_compile
from pathlib import Path

import pytest

from steps.nodeimage.layer import layer_content, normalization
from tests.unit.clients.image import trees

EPOCH = 1_700_000_000


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def below(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    return tmp_path / "below"


@pytest.mark.parametrize(
    "path",
    [
        "var/log/dpkg.log",
        "var/log/apt/term.log",
        "var/cache/apt/pkgcache.bin",
        "var/lib/apt/lists/x_Packages",
        "var/cache/ldconfig/aux-cache",
        "var/cache/debconf/config.dat-old",
        "var/lib/dpkg/status-old",
        "var/lib/dpkg/lock-frontend",
        "var/lib/systemd/random-seed",
        "var/lib/dbus/machine-id",
        "etc/ssh/ssh_host_ed25519_key",
        "etc/ssh/ssh_host_ed25519_key.pub",
        "etc/passwd-",
        "boot/initrd.img-6.1.0-40-amd64",
        "run/lock/x",
        "tmp/x/y",
        "dev/null",
        "root/.cache/pip/x",
    ],
)
def test_goes(tree: Path, path: str) -> None:
    trees.write(tree / path, "x")
    normalization.normalise(tree, None, EPOCH)
    assert not (tree / path).exists()


@pytest.mark.parametrize("path", ["etc/passwd", "var/lib/dpkg/status", "etc/ssh/sshd_config", "boot/vmlinuz-6.1", "var/spool/x"])
def test_stays(tree: Path, path: str) -> None:
    trees.write(tree / path, "x")
    normalization.normalise(tree, None, EPOCH)
    assert (tree / path).read_text() == "x"


def test_folders_of_services_stay(tree: Path) -> None:
    trees.write(tree / "var/log/apt/term.log", "x")
    normalization.normalise(tree, None, EPOCH)
    assert (tree / "var/log/apt").is_dir()


def test_machine_id_is_there_and_empty(tree: Path) -> None:
    trees.write(tree / "etc/machine-id", "1234\n", 0o444)
    normalization.normalise(tree, None, EPOCH)
    assert (tree / "etc/machine-id").read_bytes() == b""


def test_links_are_never_followed(tree: Path, tmp_path: Path) -> None:
    outside = trees.write(tmp_path / "outside/file", "x")
    (tree / "var").mkdir()
    (tree / "var/log").symlink_to(outside.parent)
    (tree / "etc").mkdir()
    (tree / "etc/machine-id").symlink_to(outside)
    normalization.normalise(tree, None, EPOCH)
    assert outside.read_text() == "x"
    assert outside.stat().st_mtime != EPOCH


def test_every_time_is_the_recipes(tree: Path, tmp_path: Path) -> None:
    trees.small(tmp_path / "source").rename(tree / "all")
    normalization.normalise(tree, None, EPOCH)
    paths = [tree, *tree.rglob("*")]
    assert {path.lstat().st_mtime_ns for path in paths} == {EPOCH * 10**9}


def test_compiled_modules_still_fit_their_source(tree: Path) -> None:
    source = trees.write(tree / "usr/lib/python3/module.py", "answer = 42\n")
    compiled = Path(py_compile.compile(str(source), cfile=str(tree / "usr/lib/python3/__pycache__/module.pyc")))
    normalization.normalise(tree, None, EPOCH)
    assert int.from_bytes(compiled.read_bytes()[8:12], "little") == EPOCH == int(source.stat().st_mtime)


def test_what_lies_below_alike_is_taken_out(tree: Path, below: Path) -> None:
    for root in (tree, below):
        trees.write(root / "etc/ld.so.cache", "same")
        trees.write(root / "usr/share/doc/x", "same")
        root.joinpath("usr/lib").mkdir()
    trees.write(tree / "etc/motd", "new")
    trees.write(below / "etc/motd", "old")
    normalization.normalise(tree, below, EPOCH)
    assert sorted(str(path.relative_to(tree)) for path in tree.rglob("*")) == ["etc", "etc/motd"]


def test_other_rights_are_a_difference(tree: Path, below: Path) -> None:
    trees.write(tree / "etc/shadow", "same", 0o600)
    trees.write(below / "etc/shadow", "same", 0o640)
    for root, mode in ((tree, 0o700), (below, 0o755)):
        (root / "srv").mkdir()
        (root / "srv").chmod(mode)
    normalization.normalise(tree, below, EPOCH)
    assert (tree / "etc/shadow").exists()
    assert (tree / "srv").is_dir()


def test_what_hides_something_stays(tree: Path, below: Path) -> None:
    for path in ("etc/gone", "var/log/gone.log", "var/cache/apt/gone.bin", "opt/old"):
        trees.write(below / path, "x")
    for path in ("etc/gone", "var/log/gone.log", "var/cache/apt/gone.bin"):
        trees.whiteout(tree / path)
    (tree / "opt").mkdir()
    os.setxattr(tree / "opt", layer_content.OPAQUE, b"y")
    os.setxattr(tree / "opt", "user.overlay.origin", b"handle")
    normalization.normalise(tree, below, EPOCH)
    assert [item.path for item in layer_content.items(tree) if item.kind == "whiteout"] == [
        "etc/gone",
        "var/cache/apt/gone.bin",
        "var/log/gone.log",
    ]
    assert trees.opaque(tree / "opt")
    assert os.listxattr(tree / "opt") == [layer_content.OPAQUE]


def test_twice_is_once(tree: Path, tmp_path: Path) -> None:
    trees.small(tmp_path / "source").rename(tree / "all")
    normalization.normalise(tree, None, EPOCH)
    once = layer_content.read(tree)
    normalization.normalise(tree, None, EPOCH)
    assert layer_content.read(tree) == once
