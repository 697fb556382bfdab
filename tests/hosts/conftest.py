"""Fresh SSH hosts for each test; where this machine cannot make them, the reason by name."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(1, str(Path(__file__).parents[1] / "cluster"))

import release_site
from cluster_site import NEWER, OLDER
from hostlab import lab, needs, unmet
from hostlab.census import PLAYS_OF_OTHERS_SECONDS, census, left
from hostlab.waiting import until
from kubelab import needs as real_needs
from kubelab import parts
from rke2_plays import RELEASES, Site

CONTROL_PLANE = ("etcd", "etcdutl", "kube-apiserver", "kubectl")

Up = Callable[..., lab.Lab]


@pytest.fixture(scope="session")
def able(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Skip the tier where it cannot run (where it must run, that is a failure); at its end this machine is as it was."""
    unmet.demand("hosts tier", needs.missing())
    lab.down()
    work = tmp_path_factory.getbasetemp()
    before = census(work)
    yield
    until(lambda: not left(before, work), PLAYS_OF_OTHERS_SECONDS)
    assert left(before, work) == {}, "the tier left something on this machine"


@pytest.fixture
def up(able: None) -> Iterator[Up]:
    """Makes hosts, and removes them after the test."""
    lab.down()
    yield lab.up
    lab.down()


@pytest.fixture
def site(tmp_path: Path, up: Up) -> Iterator[Site]:
    """A download site with releases of two minors, for tests of the plays themselves."""
    with release_site.offered(tmp_path, RELEASES) as url:
        yield Site(url, tmp_path / "site", tmp_path)


@pytest.fixture(scope="session")
def programs() -> tuple[Path, ...]:
    """The real parts of a control plane, built where they are not cached; the reason where this machine cannot."""
    unmet.demand("real parts", real_needs.missing())
    every = parts.programs()
    return tuple(every[name] for name in CONTROL_PLANE)


@pytest.fixture
def source(tmp_path: Path, programs: tuple[Path, ...]) -> Iterator[str]:
    """A download site with two releases whose servers run a real control plane, as hosts see it."""
    with release_site.offered(tmp_path, (OLDER, NEWER), programs) as url:
        yield url
