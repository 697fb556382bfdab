"""One store with the tiny recipe built, from which the tests take layers and packages."""

from pathlib import Path

import pytest

from steps.stages.image_layers.contract import Built
from tests.boot.builder import tiny


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the packages alone."""
    return tiny.filled(tmp_path_factory.mktemp("filled"))


@pytest.fixture(scope="session")
def reference(tmp_path_factory: pytest.TempPathFactory, archive: Path) -> tuple[Path, Built]:
    """A store with the ground built, and what it became."""
    images = tmp_path_factory.mktemp("reference")
    (images / "archive").symlink_to(archive / "archive")
    built = tiny.build(images, tiny.recipe(), "ground")
    assert not built.failed, f"{built.failed}: {built.output}"
    return images, built


@pytest.fixture
def empty(tmp_path: Path, archive: Path) -> Path:
    """A store of its own with packages, and nothing built, in a folder whose name apt and mount must not take apart, at a path of
    which apt can make no file name."""
    images = tmp_path / "an other" / "place, 50%41 #1: x" / ("deep " * 40)
    images.mkdir(parents=True)
    (images / "archive").symlink_to(archive / "archive")
    return images
