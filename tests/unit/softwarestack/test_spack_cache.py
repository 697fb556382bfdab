"""A package is in a cache if its metadata and its tarball are there, in both layouts that Spack has written."""

import json
from pathlib import Path

import pytest

from tests.unit.softwarestack.small_locks import DATA, hash_of
from workflows.softwarestack import spack_lock, stack_plan
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.spack_cache import cached_hashes

RECORDED = DATA / "real_0.23"


def _tree(listing: Path, root: Path, without: str = "") -> Path:
    """Make empty files for a recorded listing of sizes and paths, but none whose path has `without` in it."""
    for line in listing.read_text().splitlines():
        path = root / line.split(maxsplit=1)[1]
        if line and (not without or without not in line):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


def test_a_recorded_cache_of_spack_0_23_holds_the_whole_stack(tmp_path: Path) -> None:
    graph = spack_lock.read(RECORDED / "env_stack.spack.lock")
    plan = stack_plan.plan(graph, cached_hashes(_tree(RECORDED / "cache_tree_after_run.txt", tmp_path)))
    assert not plan.builds
    assert len(plan.cached) + len(plan.unneeded) == 16


def test_metadata_without_a_tarball_does_not_count(tmp_path: Path) -> None:
    graph = spack_lock.read(RECORDED / "env_stack.spack.lock")
    cache = _tree(RECORDED / "cache_tree_after_run.txt", tmp_path, without="zlib-1.2.13/")
    assert [build.node.name for build in stack_plan.plan(graph, cached_hashes(cache)).ordered] == ["zlib"]


def _manifest(root: Path, name: str, digest: str, *, signed: bool = False) -> None:
    text = json.dumps({"version": 3, "data": [{"contentLength": 1, "checksumAlgorithm": "sha256", "checksum": digest}]})
    if signed:
        header = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n"
        text = f"{header}{text}\n-----BEGIN PGP SIGNATURE-----\n\niQ\n-----END PGP SIGNATURE-----"
    file = root / "v3/manifests/spec" / name / f"{name}-1.0-{hash_of(name)}.spec.manifest.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)


def test_a_manifest_of_spack_1_counts_if_all_its_parts_are_there(tmp_path: Path) -> None:
    blob = tmp_path / "blobs/sha256/aa" / ("a" * 64)
    blob.parent.mkdir(parents=True)
    blob.touch()
    _manifest(tmp_path, "whole", "a" * 64)
    _manifest(tmp_path, "signed", "a" * 64, signed=True)
    _manifest(tmp_path, "part-missing", "b" * 64)
    _manifest(tmp_path, "path-as-digest", "../../../etc/passwd")
    assert cached_hashes(tmp_path) == {hash_of("whole"), hash_of("signed")}


def test_a_cache_that_is_no_folder_is_refused_and_an_empty_one_is_empty(tmp_path: Path) -> None:
    assert cached_hashes(tmp_path) == frozenset()
    with pytest.raises(LockError, match="it is no folder"):
        cached_hashes(tmp_path / "none")
