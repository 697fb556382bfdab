"""Statements about a published image: its files and packages, equal bytes for equal runs, and statements that do not fit."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.contract import attestation, release_layout
from steps.contract.canonical import digest_bytes
from steps.nodeimage.contract import image_manifest
from steps.nodeimage.contract.boot_tree import Tested
from steps.nodeimage.contract.image_tests import ImageTestOutcome, ImageTestResult
from steps.nodeimage.publishing import image_provenance
from tests.unit.clients.published.published_trees import RESULTS, RUN, image, order, place, published, wrong
from tests.unit.statement_fields import REQUIRED, SPECIFIED, absent, rewritten, unspecified

COMMIT = "0123456789" * 4
PACKAGE = image_manifest.PackageOf(name="dash", version="1:0.5", architecture="amd64", sha256="6" * 64, layer="base")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


@pytest.fixture
def version(root: Path, tmp_path: Path) -> Path:
    folder = image(tmp_path / "a", "a", packages=(PACKAGE,), tools={"mksquashfs": "4.5.1"})
    published(place(root), folder, origin=f"{COMMIT}, on bringup 1")
    return (root / "compute/current").resolve()


@pytest.mark.parametrize("file", SPECIFIED)
def test_statements_have_fields_of_the_specifications_alone(version: Path, file: str) -> None:
    statement = json.loads((version / file).read_bytes())
    assert unspecified(statement, SPECIFIED[file]) == []
    assert absent(statement, REQUIRED[file]) == []
    assert digest_bytes((version / file).read_bytes()) == release_layout.read_sums((version / "SHA256SUMS").read_bytes())[file]


def test_provenance_says_what_was_built_from_what(version: Path, root: Path) -> None:
    statement = json.loads((version / "provenance.json").read_bytes())
    subjects = {subject["name"]: f"sha256:{subject['digest']['sha256']}" for subject in statement["subject"]}
    files = (image_manifest.MANIFEST, *image_manifest.PARTS)
    assert subjects == {name: digest_bytes((version / name).read_bytes()) for name in files}
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert definition["externalParameters"] == {"name": "compute", "recipe": "sha256:" + "1" * 64}
    assert definition["resolvedDependencies"] == [
        {"name": "spec", "digest": {"gitCommit": COMMIT}},
        {"name": "packages/dash_1:0.5_amd64", "digest": {"sha256": "6" * 64}},
    ]
    assert details["builder"]["version"] == {"bringup": "0.1.0", "mksquashfs": "4.5.1"}
    assert details["metadata"]["invocationId"] == "run-1"
    tests = json.loads((version / "test-result.json").read_bytes())["predicate"]
    assert (tests["result"], tests["passedTests"]) == ("PASSED", ["sandbox: gcc_compiles"])
    assert wrong(root) == []


def test_a_test_that_failed_on_one_machine_has_failed(version: Path) -> None:
    data = (version / image_manifest.MANIFEST).read_bytes()
    failing = ImageTestResult(name="gcc_compiles", outcome=ImageTestOutcome.FAIL)
    tested = Tested(results={"boot": [failing, *RESULTS["sandbox"]], **RESULTS})
    files = image_provenance.statements(image_manifest.decode(data), data, tested, RUN)
    predicate = json.loads(files["test-result.json"])["predicate"]
    assert (predicate["result"], predicate["failedTests"]) == ("FAILED", ["boot: gcc_compiles"])


def test_another_time_is_no_new_version(root: Path, tmp_path: Path) -> None:
    where, folder = place(root), image(tmp_path / "a", "a")
    first = published(where, folder)
    later = order(where, folder, run=replace(RUN, finished=1_800_000_000.0)).release
    assert later.small_files("0001")["provenance.json"] != (root / "compute/current/provenance.json").read_bytes()
    assert later.is_same((root / "compute/current/manifest.json").read_bytes())
    again = published(where, folder)
    assert (again.unchanged, again.version) == (True, first.version)
    assert (again.provenance, again.wrong_statements) == (again.manifest, ())


@pytest.mark.parametrize("file", attestation.PREDICATES)
def test_a_statement_that_is_missing_or_of_another_image_is_found(version: Path, root: Path, tmp_path: Path, file: str) -> None:
    other = published(place(root), image(tmp_path / "b", "b"))
    rewritten(version, file, (root / "compute/versions" / other.version / file).read_bytes())
    problems = wrong(root)
    assert all(problem.startswith(f"compute/versions/{version.name}/{file} is about ") for problem in problems)
    assert len(problems) == 5, "the manifest and four files"
    rewritten(version, file, None)
    (problem,) = wrong(root)
    assert problem.startswith(f"compute/versions/{version.name}/{file} is missing")
