"""A disk without room is no bad recipe: layers that cannot be written, or read, are for later; and no unpacking hangs."""

import hashlib
from pathlib import Path

import pytest

from steps.errors import StoreBusy
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Package, ResolvedLayer
from steps.nodeimage.layer import layer_cache, layer_steps
from steps.nodeimage.layer.layer_steps import LayerWork
from tests.unit import small_image
from tests.unit.clients.image import trees

DEB = b"a package"
DIGEST = hashlib.sha256(DEB).hexdigest()
BROKEN = Path("/proc/self/mem")
"""Reading it fails as reading from a broken disk does (EIO)."""


@pytest.fixture
def work(tmp_path: Path) -> LayerWork:
    """A layer of one essential package, which is in the archive."""
    package = Package(name="a", version="1", architecture="all", sha256=DIGEST, size=9, path="a.deb", asked=True, essential=True)
    place = tmp_path / "archive" / DIGEST[:2] / f"{DIGEST}.deb"
    trees.write(place).write_bytes(DEB)
    layer = ResolvedLayer(name="base", packages=(package,))
    return LayerWork(layer=layer, archive=str(tmp_path / "archive"), files={}, secrets={}, epoch=1, expected=("a=1",))


def stand_ins(folder: Path, monkeypatch: pytest.MonkeyPatch, *, source: str, tar: str) -> None:
    """Stand-ins for both programs of unpacking, as shell scripts."""
    trees.write(folder / "dpkg-deb", f"#!/bin/sh\n{source}\n", 0o755)
    trees.write(folder / "tar", f"#!/bin/sh\n{tar}\n", 0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def root(tmp_path: Path) -> Path:
    found = tmp_path / "root"
    found.mkdir()
    return found


@pytest.mark.parametrize("said", ["No space left on device", "Disk quota exceeded"])
def test_a_program_without_room_is_for_later(tmp_path: Path, work: LayerWork, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    stand_ins(tmp_path / "bin", monkeypatch, source="exit 0", tar=f"echo 'tar: usr/x: Cannot write: {said}' >&2; exit 2")
    with pytest.raises(StoreBusy, match="the store of images is full: layer base: packages") as busy:
        layer_steps.build(root(tmp_path), work)
    assert "make room" in busy.value.hint
    assert "in a home cluster the pod of workflows/examples/images/collect.yaml" in busy.value.hint


def test_a_write_or_read_that_the_disk_refuses_is_for_later(tmp_path: Path, work: LayerWork) -> None:
    place = tmp_path / "archive" / DIGEST[:2] / f"{DIGEST}.deb"
    place.unlink()
    place.symlink_to(BROKEN)
    with pytest.raises(StoreBusy, match="the store of images cannot be written"):
        layer_steps.build(root(tmp_path), work)


def test_a_cache_that_the_disk_refuses_is_for_later(tmp_path: Path) -> None:
    recipe = small_image.recipe()
    name, key = next(iter(build_keys.layers(recipe).items()))
    entry = layer_cache.shelf(tmp_path) / key / layer_cache.ENTRY
    entry.parent.mkdir(parents=True)
    entry.symlink_to(BROKEN)
    with pytest.raises(StoreBusy, match="the store of images cannot be written"):
        layer_cache.build(tmp_path, recipe, {}, name, tmp_path, lambda _: None)


def test_a_package_that_is_no_good_is_the_recipes_fault(tmp_path: Path, work: LayerWork, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins(tmp_path / "bin", monkeypatch, source="echo 'not a Debian archive' >&2; exit 2", tar="exit 0")
    outcome = layer_steps.build(root(tmp_path), work)
    assert (outcome.failed, outcome.output) == ("packages", f"{DIGEST}.deb: not a Debian archive")


def test_unpacking_ends_with_a_tar_that_ends_early(tmp_path: Path, work: LayerWork, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins(tmp_path / "bin", monkeypatch, source="exec cat /dev/zero", tar="echo 'tar: it broke' >&2; exit 2")
    assert "tar: it broke" in layer_steps.build(root(tmp_path), work).output
