"""A spack.yaml and a recorded lock become packages and files of a stack; what a lock cannot fix is refused."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.cpu_targets import CpuFacts
from steps.softwarestack.contract.output_patterns import OutputReference
from steps.softwarestack.contract.stack_input import StackView
from steps.softwarestack.tree_tests import module_tests
from tests.unit.softwarestack.small_locks import DATA
from workflows.app.stacks import stack_findings, stack_plans
from workflows.softwarestack import spack_environment_file, spack_lock, spack_resolution, stack_resolution
from workflows.softwarestack.build_graph import LockError
from workflows.softwarestack.lock_changes import spack_changes
from workflows.softwarestack.stack_resolution import ResolvedStack
from workflows.softwarestack.stack_spec import load_stack
from workflows.spec import SpecErrors

LOCK = (DATA / "real_0.23/env_stack.spack.lock").read_bytes()
SPEC: dict[str, Any] = {
    "apiVersion": "bringup/v1",
    "kind": "Stack",
    "name": "lab",
    "owner": "hpc@example.org",
    "revision": "1",
    "spack": {"url": "https://github.com/spack/spack.git", "revision": "v0.23.0", "environment": "envs/spack.yaml"},
    "builder": "registry.example.org/builder:2026.11",
    "target": "x86_64",
    "jobs": 2,
    "publish": {"root": "/srv/stacks"},
}
ENVIRONMENT: dict[str, Any] = {
    "specs": ["zstd"],
    "view": True,
    "repos": ["recipes", "/opt/recipes"],
    "packages": {"gmake": {"buildable": False}},
    "mirrors": {"site": "file:///srv/mirror"},
}


def _write(folder: Path, environment: dict[str, Any] | None = None, **spec: Any) -> Path:
    envs = folder / "envs"
    recipe = envs / "recipes/packages/zlib/package.py"
    recipe.parent.mkdir(parents=True)
    recipe.write_text("class Zlib: pass\n")
    (envs / "recipes/repo.yaml").write_text("repo: {namespace: site}\n")
    (envs / "recipes/packages/zlib/__pycache__").mkdir()
    (envs / "recipes/packages/zlib/__pycache__/package.pyc").write_bytes(b"\0")
    (envs / "spack.yaml").write_text(yaml.safe_dump({"spack": ENVIRONMENT | (environment or {})}))
    (folder / "spack.lock").write_bytes(LOCK)
    path = folder / "stack.yaml"
    path.write_text(yaml.safe_dump(SPEC | spec))
    return path


def _resolved(path: Path) -> ResolvedStack:
    return stack_resolution.resolve(load_stack(path), path.parent)


def test_packages_of_a_lock_for_two_cpu_targets_keep_theirs(tmp_path: Path) -> None:
    path = _write(tmp_path)
    lock = json.loads(LOCK)
    (zstd,) = [spec for spec in lock["concrete_specs"].values() if spec["name"] == "zstd"]
    other = zstd | {"hash": "z" * 32, "arch": zstd["arch"] | {"target": {"name": "a64fx"}}}
    lock["concrete_specs"][other["hash"]] = other
    lock["roots"].append({"hash": other["hash"], "spec": "zstd target=a64fx"})
    (tmp_path / "spack.lock").write_text(json.dumps(lock))
    resolved = _resolved(path)
    stack = stack_input.decode(stack_input.encode(resolved.stack))
    both = {package.target: package.module for package in stack.packages if package.name == "zstd"}
    assert both == {"": "Core/zstd/1.5.4-rd24mwd", "a64fx": "Core/zstd/1.5.4-zzzzzzz"}
    assert {"z" * 32, zstd["hash"]} <= set(resolved.planned(()).builds)
    machine = CpuFacts(architecture="x86_64", features=frozenset())
    assert module_tests.lacking_targets(stack, machine) == {"a64fx": "the architecture aarch64"}
    sentences = list(stack_plans.prepare(str(path), None, None, (4,)).sentences())
    assert "CPU targets: a64fx (1 package), x86_64 (16 packages)" in sentences


def test_a_recorded_lock_becomes_packages_in_the_order_of_their_needs(tmp_path: Path) -> None:
    resolved = _resolved(_write(tmp_path))
    stack = stack_input.decode(stack_input.encode(resolved.stack))
    assert (stack.backend, stack.release, len(stack.packages)) == ("spack", "0.23.0", 19)
    by_name = {package.name: package for package in stack.packages}
    assert by_name["zstd"].module == "Core/zstd/1.5.4-rd24mwd"
    assert (by_name["glibc"].external, by_name["glibc"].module, by_name["glibc"].memory_mib) == (True, "", 0)
    assert 1 <= by_name["zstd"].jobs <= 2
    assert set(resolved.planned(()).builds) == {package.hash for package in stack.packages if not package.external}


def test_flat_modules_are_said_at_validate(tmp_path: Path) -> None:
    (note,) = [issue for issue in stack_findings.issues(_write(tmp_path)) if issue.rule == "spack_modules"]
    assert (note.severity, "not by compiler and MPI" in note.problem) == ("warning", True)


def test_a_hierarchy_and_a_view_are_resolved_and_said_in_the_plan(tmp_path: Path) -> None:
    spack = SPEC["spack"] | {"naming": "hierarchical", "core_compilers": ["gcc@12.2.0"]}
    path = _write(tmp_path, spack=spack, module_syntax="tcl", view={"packages": ["zstd", "xz@5.4.1"], "order": ["xz"]})
    stack = stack_input.decode(stack_input.encode(_resolved(path).stack))
    by_name = {package.name: package for package in stack.packages}
    assert by_name["mpi-ring"].module == "openmpi/4.1.4-unvlsce/Core/mpi-ring/1.0-4o62wrv"
    assert stack.spack is not None
    assert [provider.module for provider in stack.spack.providers] == ["Core/openmpi/4.1.4-unvlsce"]
    assert stack.view == StackView(packages=(by_name["zstd"].hash, by_name["xz"].hash), order=(by_name["xz"].hash,))
    sentences = load_stack(path).arrangement
    assert ["`module use /srv/stacks/lab/current/modules/all/Core`" in sentences[0], "Tcl" in sentences[1]] == [True, True]
    assert sentences[2] == "versions have a view of zstd, xz@5.4.1 in /srv/stacks/lab/current/view"
    assert not any(issue.rule == "spack_modules" for issue in stack_findings.issues(path))
    assert not load_stack(_write(tmp_path / "plain")).arrangement


def test_a_view_of_all_has_the_roots_and_one_of_an_unknown_package_is_refused(tmp_path: Path) -> None:
    stack = _resolved(_write(tmp_path, view=True)).stack
    assert stack.view is not None
    assert set(stack.view.packages) == set(stack.roots)
    with pytest.raises(LockError, match="view names hdf5, which is none of the installed packages"):
        _resolved(_write(tmp_path / "other", view={"packages": ["hdf5"]}))


TEST = {"name": "hello", "command": ["hello"]}


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"expect": "(a+)+"}, "a repetition within a repetition"),
        ({"reference": {"pattern": "GB/s", "least": 1}}, "0 groups, and 1 is expected"),
        ({"reference": {"pattern": "([0-9]+)"}}, "compares nothing"),
        ({"reference": {"pattern": "([0-9]+)", "least": 2, "most": 1}}, "no figure is at least 2 and at most 1"),
        ({"incident": "two\nlines"}, "incident"),
    ],
)
def test_tests_that_could_not_judge_are_refused(tmp_path: Path, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(SpecErrors, match=re.escape(why)):
        load_stack(_write(tmp_path, tests=[TEST | fields]))


def test_patterns_figures_and_incidents_reach_the_tasks(tmp_path: Path) -> None:
    fields = {"expect": "^2 ranks", "reference": {"pattern": "([0-9.]+) GB/s", "least": 1}, "incident": "It broke."}
    (case,) = _resolved(_write(tmp_path, tests=[TEST | fields])).stack.tests
    assert (case.expect, case.reference, case.incident) == (
        "^2 ranks",
        OutputReference(pattern="([0-9.]+) GB/s", least=1),
        "It broke.",
    )


def test_lock_settings_and_recipes_travel_as_files(tmp_path: Path) -> None:
    resolved = _resolved(_write(tmp_path))
    spack = resolved.stack.spack
    assert spack is not None
    files = {hashlib.sha256(data).hexdigest(): data for data in resolved.files}
    assert files[spack.lock] == LOCK
    assert json.loads(files[spack.settings]) == {"packages": {"gmake": {"buildable": False}}}
    assert spack.repositories == ("0-recipes", "/opt/recipes")
    assert [recipe.path for recipe in spack.recipes] == ["0-recipes/repo.yaml", "0-recipes/packages/zlib/package.py"]
    assert files[spack.recipes[1].sha256] == b"class Zlib: pass\n"


def test_another_recipe_makes_another_stack(tmp_path: Path) -> None:
    path = _write(tmp_path)
    before = _resolved(path).stack.digest
    (tmp_path / "envs/recipes/packages/zlib/package.py").write_text("class Zlib: changed = True\n")
    assert _resolved(path).stack.digest != before


def test_a_lock_remembers_the_recipes_that_it_was_made_from(tmp_path: Path) -> None:
    path = _write(tmp_path)
    environment = spack_environment_file.read(tmp_path / "envs/spack.yaml")
    content = spack_resolution.with_wishes(LOCK, environment)
    assert {name: value for name, value in json.loads(content).items() if name != "bringup"} == json.loads(LOCK)
    (tmp_path / "spack.lock").write_bytes(content)
    assert _resolved(path).stack.packages
    (tmp_path / "envs/recipes/packages/zlib/package.py").write_text("class Zlib: changed = True\n")
    with pytest.raises(LockError, match="recipes of its package repositories have changed since it was made"):
        _resolved(path)


@pytest.mark.parametrize(
    ("change", "is_refused"),
    [
        ({"specs": ["zstd", "zlib"]}, True),
        ({"packages": {"gmake": {"buildable": True}}}, True),
        ({"view": False, "mirrors": {}}, False),
    ],
    ids=["specs", "packages", "places"],
)
def test_a_lock_for_other_specs_or_settings_is_refused(tmp_path: Path, change: dict[str, Any], is_refused: bool) -> None:
    path = _write(tmp_path)
    file = tmp_path / "envs/spack.yaml"
    (tmp_path / "spack.lock").write_bytes(spack_resolution.with_wishes(LOCK, spack_environment_file.read(file)))
    file.write_text(yaml.safe_dump({"spack": ENVIRONMENT | change}))
    if not is_refused:
        assert _resolved(path).stack.packages
        return
    with pytest.raises(LockError, match=r"specs or settings of envs/spack\.yaml have changed since it was made"):
        _resolved(path)


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "include": ({"include": ["more.yaml"]}, {}, "section include: settings of other files are not locked"),
    "develop": ({"develop": {"zlib": {}}}, {}, "section develop: sources under development are not locked"),
    "repository": ({"repos": ["https://example.org/x y"]}, {}, "is no path of a folder in plain characters"),
    "repository-git": ({"repos": {"x": {"git": "https://example.org"}}}, {}, "is no path of a folder in plain characters"),
    "repository-up": ({"repos": ["../recipes"]}, {}, "is no path of a folder in plain characters"),
    "repository-gone": ({"repos": ["elsewhere"]}, {}, "it is no package repository"),
    "target": ({}, {"target": "zen4"}, "it was made for target x86_64, and the spec says zen4"),
    "release": (
        {},
        {"spack": SPEC["spack"] | {"revision": "v1.0.0"}},
        "it was made by Spack 0.23.0, and the spec says v1.0.0",
    ),
    "lock": ({}, {"lock": "other.lock"}, "the lock of this stack is not there"),
}


@pytest.mark.parametrize(("environment", "spec", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_a_stack_cannot_lock_is_refused(
    tmp_path: Path, environment: dict[str, Any], spec: dict[str, Any], message: str
) -> None:
    path = _write(tmp_path, environment, **spec)
    with pytest.raises(LockError, match=message):
        _resolved(path)


HOSTILE = {
    "text": b"\xff\xfe",
    "list": b"- a\n",
    "tag": b"spack: !!python/object:os.system {}\n",
    "alias": b"spack: &a {x: 1}\nother: *a\n",
    "empty": b"",
    "section": b"spack: [specs]\n",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE.keys())
def test_environments_that_are_none_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "spack.yaml"
    path.write_bytes(content)
    with pytest.raises(LockError, match=r"spack\.yaml"):
        spack_environment_file.read(path)


def test_a_link_in_a_package_repository_is_refused(tmp_path: Path) -> None:
    path = _write(tmp_path)
    (tmp_path / "envs/recipes/packages/zlib/key.patch").symlink_to("/etc/passwd")
    with pytest.raises(LockError, match="it is a link"):
        _resolved(path)


def test_changes_of_a_lock_are_told_by_package() -> None:
    before = spack_lock.parse(LOCK, "before")
    content = json.loads(LOCK)
    old = "72a7sbl5a7r4q4j7v5p5km76qtyggugl"
    new = old.replace("72a7", "zzzz")
    text = json.dumps(content).replace(old, new).replace('"1.2.13"', '"1.3.1"')
    after = spack_lock.parse(text.encode(), "after")
    assert [change.line for change in spack_changes(before, after)] == ["~ zlib: 1.2.13 72a7sbl → 1.3.1 zzzzsbl"]
    assert [change.why for change in spack_changes(before, after)] == ["another version"]
    assert spack_changes(before, before) == ()
    assert len(spack_changes(None, before)) == 19


def test_another_set_of_roots_is_a_change() -> None:
    before = spack_lock.parse(LOCK, "before")
    content = json.loads(LOCK)
    content["roots"].append({"hash": "72a7sbl5a7r4q4j7v5p5km76qtyggugl", "spec": "zlib"})
    after = spack_lock.parse(json.dumps(content).encode(), "after")
    assert [change.line for change in spack_changes(before, after)] == [f"~ roots: {len(before.roots)} → {len(after.roots)}"]
