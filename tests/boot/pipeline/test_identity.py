"""The shipped recipe `compute`, built twice from its packages, elsewhere, later and in another environment: the same bytes."""

import os
import shutil
from pathlib import Path

import pytest

from tests.boot.pipeline.site import ELSEWHERE, LOCK, Site, digests


def assembled(site: Site) -> Path:
    """Return the folder of the image that was assembled last."""
    (record,) = site.records("image_assemble", "outputs")
    return site.images / "assembled" / str(record["observation"]["key"])


def layers(site: Site) -> dict[str, str]:
    """Digest of the content of each layer, by its key."""
    seen = [site.records("image_layers", f"layer_{name}")[0]["observation"] for name in ("base", "hpc")]
    assert not [one for one in seen if one.get("cached")]
    return {one["key"]: one["digest"] for one in seen}


@pytest.mark.long
def test_two_builds_of_compute_give_the_same_bytes(tmp_path: Path) -> None:
    first = Site(tmp_path / "first", recipe="compute")
    first.lock()
    first.run("image", "build", "--until", "image_assemble")
    second = Site(tmp_path / "another folder/of another depth", first.images / "archive", recipe="compute")
    shutil.copy(first.folder / LOCK, second.folder)
    second.environment |= {**ELSEWHERE, "TMPDIR": str(tmp_path / "another folder")}
    before = os.umask(0o077)
    try:
        second.run("image", "build", "--until", "image_assemble")
    finally:
        os.umask(before)
    assert layers(second) == layers(first)
    assert assembled(second).name == assembled(first).name
    assert digests(assembled(second)) == digests(assembled(first))
    shutil.rmtree(tmp_path)
