"""Package changes of an image against the published one, shown to approvers and in the report before the image is built."""

from pathlib import Path

import msgspec
import pytest

from steps.clients.store import Store
from steps.contract.canonical import canonical
from steps.contract.runs.evidence import Evidence
from steps.nodeimage.contract.image_manifest import PackageOf
from steps.nodeimage.product_report import details as shown
from steps.nodeimage.publishing import publication_status
from steps.stages.image_status import contract as image_status
from steps.stages.image_status.contract import ImageStatus
from tests.unit.clients.published.published_trees import KINDS, image, place, published, transport
from workflows.engines import open_approvals
from workflows.engines.folders import StateFolder

HAD = {"gcc": "12", "htop": "3", "bash": "5"}
HAS = {"gcc": "13", "jq": "1", "bash": "5"}


def packages(versions: dict[str, str]) -> tuple[PackageOf, ...]:
    return tuple(
        PackageOf(name=one, version=versions[one], architecture="amd64", sha256="0" * 64, layer="base") for one in versions
    )


def asked(root: Path, kind: str = "local", key: str = "1" * 64) -> ImageStatus:
    with transport(kind, root) as way:
        return publication_status.query(way, place(root), "compute", key, (), HAS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.mark.parametrize("kind", KINDS)
def test_packages_are_compared_with_the_published_ones(tmp_path: Path, root: Path, kind: str) -> None:
    assert asked(root, kind).against == "", "nothing is published"
    version = published(place(root), image(tmp_path / "a", "a", packages=packages(HAD))).version
    assert asked(root, kind).against == f"packages against {version}: 1 changed (gcc 12 → 13), 1 added (jq=1), 1 removed (htop=3)"


def test_of_many_a_few_are_named(root: Path) -> None:
    many = tuple(f"p{number}=1" for number in range(20))
    seen = ImageStatus(key="1", where="x", answer="changed", version="0001-0", differs="it", packages_added=many)
    assert seen.against == "packages against 0001-0: 20 added (p0=1, p1=1, p2=1 and 17 more)"
    same = ImageStatus(key="1", where="x", answer="changed", version="0001-0", differs="it")
    assert same.against == "packages against 0001-0: the same"


def test_approvers_and_the_report_are_told(tmp_path: Path, root: Path) -> None:
    version = published(place(root), image(tmp_path / "a", "a", packages=packages(HAD))).version
    folder = StateFolder(tmp_path / "home").run("r1")
    record = Evidence(
        run="r1", stage=image_status.ID, task=image_status.TASK, verb="publish", shard=0, attempt=1, input_digest="sha256:0",
        engine="local", started=1.0, finished=2.0, observation=msgspec.to_builtins(asked(root)),
    )  # fmt: skip
    assert open_approvals.changes(folder) == ""
    Store(folder.home.store).write_evidence(record, canonical)
    assert open_approvals.changes(folder).startswith(f"packages against {version}: 1 changed")
    one = open_approvals.OpenApproval(
        run="r1", node="n", stage="s", approved="a", evidence="e", approvers={}, changes="packages: 1"
    )
    assert one.about == "a in r1: no verdict; packages: 1; evidence e"
    made = shown([record])
    assert made is not None
    assert (made.version, made.before, made.changed) == ("", version, ("gcc 12 → 13",))
