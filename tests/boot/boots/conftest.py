"""The store with the image that is booted; where this machine cannot boot it, the reason by name."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1]))

import boot as needs
import quick_image


@pytest.fixture(scope="session")
def store() -> Path:
    missing = needs.missing()
    if missing:
        pytest.skip("; ".join(missing))
    return quick_image.store()
