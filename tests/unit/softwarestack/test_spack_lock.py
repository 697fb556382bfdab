"""Locks are read as the index of published ones says, and hostile ones are refused with a sentence."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.softwarestack.small_locks import DATA, chain, hash_of, lock, spec
from workflows.softwarestack import spack_lock
from workflows.softwarestack.build_graph import LockError

PUBLISHED = [case for case in yaml.safe_load((DATA / "INDEX.yaml").read_text())["cases"] if case["file"].endswith(".lock")]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: str(case["file"]))
def test_published_locks_read_as_their_index_says(case: dict[str, Any]) -> None:
    expected = case["expected"]
    if expected["verdict"] != "pass":
        with pytest.raises(LockError, match=f"lockfile version {expected['lockfile_version']} is not supported"):
            spack_lock.read(DATA / case["file"])
        return
    graph = spack_lock.read(DATA / case["file"])
    assert len(graph.nodes) == expected["concrete_specs"]
    assert len(graph.roots) == expected["roots"]
    assert sum(node.external for node in graph.nodes.values()) == expected["externals"]
    assert len({node.name for node in graph.nodes.values()}) == expected["distinct_names"]


@pytest.mark.parametrize("version", spack_lock.VERSIONS)
def test_types_of_dependencies_are_read_in_each_version(version: int) -> None:
    specs = chain()
    if version == 4:
        for fields in specs.values():
            fields["dependencies"] = [
                {"name": one["name"], "hash": one["hash"], "type": one["parameters"]["deptypes"]} for one in fields["dependencies"]
            ]
    graph = spack_lock.parse(lock(specs, ["app"], version), "spack.lock")
    app = graph.nodes[hash_of("app")]
    assert (app.runtime, app.build) == ((hash_of("lib"),), (hash_of("tool"),))
    assert graph.nodes[hash_of("libc")].external


def test_compilers_are_packages_since_version_6() -> None:
    specs = chain() | {"gcc": spec("gcc", version="13.2.0", external={"path": "/usr"})}
    specs["lib"]["dependencies"].append(
        {"name": "gcc", "hash": hash_of("gcc"), "parameters": {"deptypes": ["build"], "virtuals": ["c", "cxx"]}}
    )
    graph = spack_lock.parse(lock(specs, ["app"], 6), "spack.lock")
    assert graph.nodes[hash_of("lib")].compiler == "gcc@13.2.0"
    assert graph.nodes[hash_of("app")].compiler == ""


def _with(change: dict[str, dict[str, Any]]) -> bytes:
    return lock(chain() | change, ["app"])


HOSTILE: dict[str, tuple[bytes, str]] = {
    "no-json": (b"{", "it is no spack.lock: Input data was truncated"),
    "no-text": (b"\xff\xfe{}", "it is no spack.lock"),
    "other-file": (b'{"_meta": {"file-type": "poetry", "lockfile-version": 5}}', "_meta.file-type is 'poetry'"),
    "newer": (lock(chain(), ["app"], 8), "lockfile version 8 is not supported, versions 4 to 7 are"),
    "no-roots": (lock(chain(), []), "it has no roots"),
    "root-missing": (lock(chain(), ["other"]), f"root '{hash_of('other')}' is none of its packages"),
    "node-missing": (
        lock({"app": chain()["app"]}, ["app"]),
        f"package app@1.0 needs '{hash_of('lib')}', which is none of its packages",
    ),
    "circle": (_with({"base": spec("base", ["app"])}), "packages need each other in a circle: "),
    "itself": (_with({"base": spec("base", ["base"])}), "package base@1.0 needs itself"),
    "path-as-name": (_with({"base": spec("base", name="../../etc")}), "has the name '../../etc', which is none"),
    "option-as-name": (_with({"base": spec("base", name="--help")}), "has the name '--help', which is none"),
    "path-as-version": (_with({"base": spec("base", version="1/../../x")}), "has the version '1/../../x', which is none"),
    "line-as-version": (_with({"base": spec("base", version="1\n2")}), "which is none that a package can have"),
    "no-version": (_with({"base": spec("base", version="")}), "package base has the version '', which is none"),
    "nested": (b'{"_meta": ' + b"[" * 100_000, "it is no spack.lock"),
    "types": (b'{"_meta": {"file-type": "spack-lockfile", "lockfile-version": 5}, "roots": 3, "concrete_specs": {}}', "Expected"),
}


@pytest.mark.parametrize(("content", "sentence"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_locks_are_refused(content: bytes, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "spack.lock").write_bytes(content)
    with pytest.raises(LockError) as refused:
        spack_lock.read(tmp_path / "spack.lock")
    assert sentence in str(refused.value)
    assert str(refused.value).startswith(str(tmp_path))


def test_a_path_as_hash_is_refused() -> None:
    content = lock(chain(), ["app"]).replace(hash_of("app").encode(), b"../../../../../../etc/passwd")
    with pytest.raises(LockError, match="is no package hash"):
        spack_lock.parse(content, "spack.lock")


def test_a_million_packages_are_refused_before_they_are_planned() -> None:
    one = b'"%07d": {"name": "a", "version": "1"}'
    content = lock({}, ["app"]).replace(
        b'"concrete_specs": {}', b'"concrete_specs": {' + b",".join(one % number for number in range(1_000_000)) + b"}"
    )
    with pytest.raises(LockError, match="it lists 1000000 packages, at most 50000 are planned"):
        spack_lock.parse(content, "spack.lock")
