"""An SSH server with a folder to publish into; where this machine cannot have one, the reason by name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "boots"))

import boot as needs
import quick_image
import ssh_server


@pytest.fixture(scope="session")
def able() -> None:
    if missing := needs.missing():
        pytest.skip("; ".join(missing))


@pytest.fixture
def server(able: None, tmp_path: Path) -> Iterator[ssh_server.Server]:
    folder = tmp_path / "ssh"
    folder.mkdir()
    with ssh_server.running(folder) as running:
        yield running


@pytest.fixture(scope="session")
def store(able: None) -> Path:
    return quick_image.store()
