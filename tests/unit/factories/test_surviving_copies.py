"""Copies without which a factory is not rebuilt: release trees, files, and folders with a marker; about 1 CPU second."""

import os
import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.unit.softwarestack import published_stacks
from workflows.app.factories import surviving_copies
from workflows.spec.pipelines.factory_spec import SurvivingCopy

HOUR, OLD = 3600.0, 1_700_000_000.0


def problems(path: Path, marker: str | None = None) -> list[str]:
    """Return what is wrong with a copy, without its path."""
    copy = SurvivingCopy(what="stacks", path=str(path), within=timedelta(hours=24), marker=marker)
    reasons = list(surviving_copies.problems(copy, time.time()))
    assert all(("does not say" in why) == (fix == surviving_copies.UNMARKED) for why, fix in reasons)
    assert all(("by its pointer" in why) == fix.startswith(surviving_copies.RENEWED) for why, fix in reasons)
    assert all("marker" in fix or "renew the copy of stacks" in fix for _, fix in reasons)
    return [why.replace(str(path), "PATH") for why, _ in reasons]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published stack of two packages."""
    folder = tmp_path_factory.mktemp("published")
    (folder / "root").mkdir()
    published_stacks.published(folder, folder / "root", published_stacks.ZLIB)
    return folder / "root"


@pytest.fixture
def stacks(published: Path, tmp_path: Path) -> Path:
    """A copy of it with all times and links."""
    return Path(shutil.copytree(published, tmp_path / "copy", symlinks=True))


def age(path: Path, seconds: float = OLD) -> None:
    os.utime(path, (seconds, seconds), follow_symlinks=False)


def test_a_copy_of_published_stacks_is_compared_with_its_manifest(stacks: Path) -> None:
    assert problems(stacks) == []
    assert problems(stacks / "tools") == []
    (manifest,) = stacks.glob("tools/versions/*/manifest.json")
    data = manifest.read_bytes()
    manifest.write_bytes(data.replace(b"easybuild", b"easybuilt"))
    (why,) = problems(stacks)
    assert "is not the one that its name tells" in why
    manifest.write_bytes(data)
    next(stacks.glob("tools/versions/*/modules/all/Core/zlib/1.3.lua")).unlink()
    (why,) = problems(stacks)
    assert "lacks files of its manifest" in why


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        ("packages/zlib*", "packages/zlib-1.3-"),
        ("packages/HPL*/lib/deep/data.json", "packages/HPL-2.3-"),
        ("tools/current", "tools/current is missing"),
        ("tools/versions/*/manifest.json", "has no manifest of a stack or an image"),
        ("tools/versions/*/SHA256SUMS", "lacks files of its manifest"),
    ],
)
def test_what_a_restoration_would_lack_is_named(stacks: Path, broken: str, why: str) -> None:
    (path,) = stacks.glob(broken)
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    (problem,) = problems(stacks)
    assert problem.startswith("the copy of stacks at PATH is not complete: ")
    assert why in problem


def test_a_log_that_is_touched_makes_no_backup_new(stacks: Path) -> None:
    (stacks / "backup.log").write_text("rsync: connection refused\n")
    age(stacks / "tools/current")
    (why,) = problems(stacks)
    assert "h old by its pointer tools/current, and may be 24.0 h" in why
    (stacks / "complete").write_text("")
    assert problems(stacks, "complete") == []
    age(stacks / "complete")
    assert problems(stacks, "complete") == [why.replace(" by its pointer tools/current", "")]


def test_a_product_that_is_renewed_hides_no_old_one(published: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(published, tmp_path / "copy", symlinks=True))
    shutil.copytree(root / "tools", root / "apps", symlinks=True)
    assert problems(root) == []
    age(root / "apps/current", time.time() - 30 * HOUR)
    assert problems(root) == ["the copy of stacks at PATH is 30.0 h old by its pointer apps/current, and may be 24.0 h"]
    (root / "complete").write_text("")
    assert problems(root, "complete") == [], "the job that copies has ended today"


def test_a_folder_of_anything_needs_a_marker_and_data(tmp_path: Path) -> None:
    assert problems(tmp_path / "none") == ["there is no copy of stacks at PATH"]
    folder = tmp_path / "dumps"
    (folder / "versions").mkdir(parents=True)
    assert problems(folder) == ["the copy of stacks at PATH is empty"]
    (folder / "complete").write_text("2026-11-29")
    assert problems(folder, "complete") == ["the copy of stacks at PATH is empty"]
    (folder / "etcd.snapshot").write_text("")
    assert problems(folder, "complete") == ["the copy of stacks at PATH is empty"]
    (folder / "etcd.snapshot").write_text("x")
    assert problems(folder, "complete") == []
    assert problems(folder) == ["the copy of stacks at PATH does not say if it is complete"]
    assert problems(folder, "done") == ["the copy of stacks at PATH has no file done, which is written once it is complete"]


def test_a_single_file_has_bytes_and_is_new(tmp_path: Path) -> None:
    file = tmp_path / "stacks.tar"
    file.write_text("")
    assert problems(file) == ["the copy of stacks at PATH is empty"]
    file.write_text("x")
    assert problems(file) == []
    age(file, time.time() - 30 * HOUR)
    assert problems(file) == ["the copy of stacks at PATH is 30.0 h old, and may be 24.0 h"]
