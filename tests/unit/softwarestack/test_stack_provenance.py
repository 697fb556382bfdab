"""Statements about a published stack: fields of the published specifications, equal bytes for equal runs, and found damage."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from steps.contract import attestation, release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.release_layout import ReleaseTarget
from steps.errors import BadTask
from steps.softwarestack.contract import stack_release
from steps.softwarestack.contract.stack_tests import StackTestKind, StackTestOutcome, StackTestResult
from steps.softwarestack.publication import stack_provenance, stack_publication
from steps.softwarestack.publication.stack_kind import manifest_of
from steps.softwarestack.publication.stack_publication import StackMaking, TestedStack
from tests.unit.softwarestack.published_stacks import (
    HPL,
    RESULTS,
    RUN,
    ZLIB,
    assembled,
    folder_of,
    input_of,
    look,
    publish,
    published,
    request,
    wrong,
)
from tests.unit.statement_fields import REQUIRED, SPECIFIED, absent, rewritten, unspecified

COMMIT = "3f2a" * 10


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    return tmp_path / "stacks"


@pytest.fixture
def version(root: Path, tmp_path: Path) -> Path:
    tree = assembled(tmp_path / "tree", root, ZLIB)
    publish(request(tree, root, origin=f"{COMMIT} with changes, on bringup 1"))
    return (root / "tools/current").resolve()


@pytest.mark.parametrize("file", SPECIFIED)
def test_statements_have_fields_of_the_specifications_alone(version: Path, file: str) -> None:
    statement = json.loads((version / file).read_bytes())
    assert unspecified(statement, SPECIFIED[file]) == []
    assert absent(statement, REQUIRED[file]) == []
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    resources = [*statement["subject"], *statement["predicate"].get("configuration", ())]
    resources += statement["predicate"].get("buildDefinition", {}).get("resolvedDependencies", ())
    assert all(resource.get("digest") or resource.get("uri") for resource in resources), "a resource needs one of them"
    assert unspecified({**statement, "signed": 1}, SPECIFIED[file]) == [".signed"]


def test_provenance_says_what_was_built_from_what(version: Path, root: Path) -> None:
    statement = json.loads((version / "provenance.json").read_bytes())
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    subjects = {subject["name"]: f"sha256:{subject['digest']['sha256']}" for subject in statement["subject"]}
    listing = root / "packages" / folder_of("zlib", "1.3") / ".bringup-files.json"
    assert subjects["manifest.json"] == digest_bytes((version / "manifest.json").read_bytes())
    assert subjects[str(listing.relative_to(root))] == digest_bytes(listing.read_bytes())
    assert len(subjects) == 3
    definition, details = statement["predicate"]["buildDefinition"], statement["predicate"]["runDetails"]
    assert definition["externalParameters"] == {"name": "tools", "root": str(root), "lock": "sha256:" + "5" * 64}
    used = {resource["name"]: resource["digest"] for resource in definition["resolvedDependencies"]}
    assert used == {
        "lock": {"sha256": "5" * 64},
        "spec": {"gitCommit": COMMIT},
        "builder": {"sha256": "4" * 64},
        "easyconfigs/z/zlib/zlib-1.3.eb": {"sha256": "1" * 64},
        "sources/zlib-1.3.tar.gz": {"sha256": "2" * 64},
        "patches/zlib.patch": {"sha256": "3" * 64},
    }
    assert definition["resolvedDependencies"][1]["annotations"] == {"withChanges": True}
    assert details == {
        "builder": {"id": "urn:bringup:engine:local:v1", "version": {"bringup": "0.1.0", "easybuild": "5.4.1"}},
        "metadata": {"invocationId": "run-1", "startedOn": "2023-11-14T22:13:20Z", "finishedOn": "2023-11-14T22:14:20Z"},
    }


def test_test_results_name_each_test(version: Path, root: Path) -> None:
    predicate = json.loads((version / "test-result.json").read_bytes())["predicate"]
    assert (predicate["result"], predicate["passedTests"]) == ("PASSED", ["zlib/1.3"])
    manifest = manifest_of(look(root), version.name)
    assert manifest is not None
    late = StackTestResult(name="hello", kind=StackTestKind.COMMAND, outcome=StackTestOutcome.TIMEOUT)
    for results, expected in (((*RESULTS, late), ("FAILED", ["hello"])), ((), ("FAILED", []))):
        files = stack_provenance.statements(manifest, b"{}", input_of(root), results, RUN)
        made = json.loads(files["test-result.json"])["predicate"]
        assert (made["result"], made.get("failedTests", [])) == expected


def test_statements_are_listed_and_equal_for_an_equal_run(version: Path, root: Path) -> None:
    manifest, data = manifest_of(look(root), version.name), (version / "manifest.json").read_bytes()
    assert manifest is not None
    sums = release_layout.read_sums((version / "SHA256SUMS").read_bytes())
    files = stack_provenance.statements(manifest, data, input_of(root, manifest.origin), RESULTS, RUN)
    assert sorted(files) == ["provenance.json", "test-result.json"]
    assert {name: digest_bytes(text) for name, text in files.items()} == {name: sums[name] for name in files}
    later = stack_provenance.statements(manifest, data, input_of(root), RESULTS, replace(RUN, finished=1_800_000_000.0))
    assert later["provenance.json"] != files["provenance.json"]
    assert later["test-result.json"] == files["test-result.json"]


def test_another_time_is_no_new_version(root: Path, tmp_path: Path) -> None:
    tree = assembled(tmp_path / "tree", root, ZLIB)
    first = publish(request(tree, root))
    kept = (root / "tools/current/provenance.json").read_bytes()
    second = request(tree, root, finished=1_800_000_000.0)
    assert b"2027-01-15T" in second.release.metadata["provenance.json"]
    again = publish(second)
    assert (again.unchanged, again.version) == (True, first.version)
    assert (root / "tools/current/provenance.json").read_bytes() == kept
    assert (again.provenance, again.wrong_statements) == (again.manifest, ())


Change = Callable[[dict[str, Any]], object]
DAMAGE: dict[str, tuple[Change | None, str]] = {
    "gone": (None, "is missing"),
    "no object": (lambda statement: statement.clear(), "cannot be read as an in-toto statement"),
    "another manifest": (lambda it: it["subject"][0]["digest"].update(sha256="9" * 64), "is about manifest.json with sha256:9999"),
    "another package": (lambda it: it["subject"].pop(), "is about packages/zlib-1.3"),
    "one more": (lambda it: it["subject"].append({"name": "other", "digest": {}}), "is about 'other', which the version has not"),
    "named twice": (lambda it: it["subject"].append(it["subject"][0]), "names a subject twice"),
    "another type": (
        lambda it: it.update(predicateType="https://slsa.dev/provenance/v0.2"),
        "about https://slsa.dev/provenance/v0.2",
    ),
    "another form": (lambda it: it.update(_type="https://in-toto.io/Statement/v0.1"), "is a https://in-toto.io/Statement/v0.1"),
}


@pytest.mark.parametrize("file", SPECIFIED)
@pytest.mark.parametrize("kind", DAMAGE)
def test_a_statement_that_is_not_the_versions_own_is_found(version: Path, root: Path, kind: str, file: str) -> None:
    change, sentence = DAMAGE[kind]
    statement = json.loads((version / file).read_bytes())
    if change is not None:
        change(statement)
    rewritten(version, file, None if change is None else json.dumps(statement).encode())
    problems = wrong(root)
    assert list(problems) == [f"tools/versions/{version.name}/{file}"]
    assert sentence in problems[f"tools/versions/{version.name}/{file}"]


def test_statements_that_no_reader_would_take_are_refused_before_anything_is_published(root: Path, tmp_path: Path) -> None:
    tree, name = assembled(tmp_path / "tree", root, ZLIB), "x" * 4000
    many = tuple(replace(RESULTS[0], name=f"{name}{number}") for number in range(1100))
    making = StackMaking(stack=input_of(root), run=RUN)
    with pytest.raises(BadTask, match=r"manifest\.json would have \d+ bytes, readers take 4194304"):
        stack_publication.stage(tree, ReleaseTarget(root=str(root)), TestedStack(results=many), making)
    assert list(root.iterdir()) == []


def test_unknown_fields_are_ignored(version: Path, root: Path) -> None:
    statement = json.loads((version / "provenance.json").read_bytes())
    statement["predicate"]["runDetails"]["builder"]["later"] = {"x": 1}
    rewritten(version, "provenance.json", json.dumps(statement).encode())
    assert wrong(root) == {}


def test_the_statement_of_another_version_does_not_fit(root: Path, tmp_path: Path) -> None:
    first, second = published(tmp_path, root, ZLIB), published(tmp_path, root, HPL)
    folder = root / "tools/versions"
    rewritten(folder / second.version, "provenance.json", (folder / first.version / "provenance.json").read_bytes())
    tree = look(root)
    manifest, place = manifest_of(tree, second.version), f"tools/versions/{second.version}/provenance.json"
    assert manifest is not None
    assert list(wrong(root)) == [place]
    sentences = [problem.why for problem in stack_provenance.problems(tree, second.version, manifest)]
    assert sentences[0].startswith(f"is about manifest.json with {first.manifest}")
    assert sentences[-1] == f"is about 'packages/{folder_of('HPL', '2.3')}/.bringup-files.json', which the version has not"


def test_a_version_of_an_earlier_release_needs_no_statement_and_the_next_publication_has_them(root: Path, tmp_path: Path) -> None:
    tree = assembled(tmp_path / "tree", root, ZLIB)
    wanted = request(tree, root)
    first = publish(replace(wanted, release=old_release(wanted.release)))
    assert not (root / "tools/current/provenance.json").exists()
    assert wrong(root) == {}
    assert first.provenance == ""
    second = publish(wanted)
    assert second.version.startswith("0002-")
    assert second.provenance == second.manifest
    assert wrong(root) == {}


def old_release(release: Any) -> Any:
    """A release as one before statements would have staged it."""
    stack = replace(release.stack, attested=False)
    metadata = {name: data for name, data in release.metadata.items() if name not in attestation.PREDICATES}
    return replace(release, stack=stack, manifest=stack_release.encode_manifest(stack), metadata=metadata)
