"""The stack of all packages, built and published once for all tests, and small stacks that use its build cache."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.stack import stack as needs
from tests.stack.stack_site import REFRAME, Site

SiteMaker = Callable[..., Site]


@dataclass(frozen=True)
class Published:
    """The first stack: its site, and what the commands said that locked, planned and built it."""

    site: Site
    lock: str
    plan: str
    build: str


@pytest.fixture(scope="session")
def ground() -> Iterator[Path]:
    """A folder that user nobody can enter: builds and tests of stacks run as that user."""
    if missing := needs.missing():
        pytest.skip("; ".join(missing))
    folder = Path(tempfile.mkdtemp(prefix="bringup-stack-tests-"))
    folder.chmod(0o755)

    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def first(ground: Path) -> Published:
    """All packages, locked, planned, built and published."""
    site = Site(ground / "first", ground / "published", ground / "cache", "first")
    (site.folder / "stack_checks.py").write_text(REFRAME)
    site.write(reframe=["stack_checks.py"], view=True)
    return Published(site, site.run("lock"), site.run("plan"), site.run("build", "--junit", "report.xml"))


@pytest.fixture
def small(first: Published, ground: Path, request: pytest.FixtureRequest) -> SiteMaker:
    """Make a site with a stack of a few packages; they are in the cache until their easyconfigs are changed."""

    def make(*packages: str, suffix: str = "", own_cache: bool = False, **spec: object) -> Site:
        name = f"{request.node.originalname.removeprefix('test_')[:28].strip('_')}{suffix}".replace("_", "-")
        cache = first.site.cache
        if own_cache:
            cache = ground / name / "cache"
            shutil.copytree(first.site.cache, cache)
        site = Site(ground / name / "user", first.site.root, cache, name)
        site.keep_only(*packages)
        site.write(**{"tests": []} | spec)
        return site

    return make
