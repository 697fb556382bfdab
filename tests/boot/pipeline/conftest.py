"""The first image of a site, built, booted and published once for all tests."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import boot as needs

from tests.boot.pipeline.site import Site


@pytest.fixture(scope="session")
def first(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A site whose image is published."""
    if missing := needs.missing():
        pytest.skip("; ".join(missing))
    site = Site(tmp_path_factory.mktemp("first"))
    site.lock()
    site.run("image", "build", "--junit", "report.xml")
    return site
