"""A disk that fills while a layer is built, wherever it does: said as such, for later, and nothing half made stays."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from steps.errors import StoreBusy
from steps.nodeimage.contract.resolved_recipe import PlacedFile, ResolvedLayer
from steps.nodeimage.layer import layer_cache
from tests.unit import small_image

DATA = b"x" * (4 << 20)
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A file system with the room that the test asks for."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", request.param, "none", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


@pytest.mark.sampled_rows(3)
@pytest.mark.parametrize("disk", ["size=2m", "ro", *(f"nr_inodes={count}" for count in range(2, 17, 2))], indirect=True)
def test_is_told_and_left_clean(disk: Path) -> None:
    placed = PlacedFile(path="/srv/big", sha256=DIGEST)
    recipe = small_image.recipe(layers=(ResolvedLayer(name="base", files=(placed,)),))
    with pytest.raises(StoreBusy, match="the store of images cannot be written"):
        layer_cache.build(disk, recipe, {DIGEST: DATA}, "base", disk, lambda _: None)
    assert [path.name for path in disk.glob("layers/*") if not path.name.endswith(".lock")] == []
