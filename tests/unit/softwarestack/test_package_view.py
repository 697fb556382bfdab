"""View of a stack: links to the files of its packages, conflicts of two packages, and its life in published versions."""

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from steps.clients.releases.publication import PublishRequest
from steps.contract.detachment import NO_FACTORY
from steps.contract.release_layout import ReleaseTarget
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import SpackFiles, StackInput, StackView
from steps.softwarestack.contract.stack_release import PublishedStack
from steps.softwarestack.contract.tree_check import TreeObservation, TreeProblemKind
from steps.softwarestack.publication import stack_detachment, stack_image, stack_publication
from steps.softwarestack.publication.stack_publication import StackMaking, TestedStack
from steps.softwarestack.tree import package_view, tree_assembly
from steps.softwarestack.tree.link_checks import TraceRules
from tests.unit.softwarestack import published_stacks, small_trees
from tests.unit.softwarestack.small_trees import HandmadePackages, hash_of, package

Files = Mapping[str, str | bytes | tuple[str]]
RULES = TraceRules(workspaces=("/build",))
PROGRAM: Files = {"bin/a": "#!/bin/sh\necho a\n", "lib/liba.so.1": "1", "lib/liba.so": ("liba.so.1",), "lib64": ("lib",)}


def _stack(root: Path, *names: str, order: tuple[str, ...] = (), packages: tuple[str, ...] | None = None) -> StackInput:
    """Return a stack of packages of EasyBuild with a view of all of them, or of `packages`."""
    viewed = names if packages is None else packages
    view = StackView(packages=tuple(map(hash_of, viewed)), order=tuple(map(hash_of, order)))
    return replace(small_trees.stack(*map(package, names)), root=str(root), view=view)


def _supply(packages: Mapping[str, Files], *, depth: bool = True) -> HandmadePackages:
    """Return packages as EasyBuild installs them: below NAME/VERSION."""
    supply = HandmadePackages()
    for name, files in packages.items():
        supply.add(name, {f"{f'{name}/1.0/' if depth else ''}{path}": content for path, content in files.items()})
        modules = supply.module_files[hash_of(name)]
        for path in modules:
            modules[path] = f'whatis("{name}")\n'
    return supply


def _assembled(folder: Path, stack: StackInput, packages: HandmadePackages) -> tuple[TreeObservation, Path]:
    seen = tree_assembly.assemble(folder, stack, packages, RULES)
    return seen, tree_assembly.tree_folder(folder, seen.digest)


def _links(stack: StackInput, tree: Path) -> dict[str, str]:
    """Return the links of an assembled view: path → target below the packages."""
    assert stack.view is not None
    place = tree / "packages" / package_view.folder(stack, stack.view)
    links = [path for path in place.rglob("*") if path.is_symlink()]
    return {path.relative_to(place).as_posix(): os.readlink(path).removeprefix(f"{stack.root}/packages/") for path in links}


def test_a_view_leads_to_the_files_of_its_packages_and_is_made_again_with_equal_bytes(tmp_path: Path) -> None:
    root = tmp_path / "root"
    stack = stack_input.decode(stack_input.encode(_stack(root, "a", "b", packages=("a",))))
    files = PROGRAM | {"easybuild/a.eb": "notes", "share/info/dir": "index", "bin/x": ("a",)}
    supply = _supply({"a": files, "b": {"bin/b": "#!/bin/sh\n"}})
    seen, tree = _assembled(tmp_path / "one", stack, supply)
    own = f"{small_trees.folder('a')}/a/1.0"
    assert (seen.problems, seen.view_links) == ((), 6)
    assert _links(stack, tree) == {
        "bin/a": f"{own}/bin/a",
        "bin/x": f"{own}/bin/x",
        "lib/liba.so": f"{own}/lib/liba.so",
        "lib/liba.so.1": f"{own}/lib/liba.so.1",
        "lib64/liba.so": f"{own}/lib/liba.so",
        "lib64/liba.so.1": f"{own}/lib/liba.so.1",
    }
    again, _ = _assembled(tmp_path / "one", stack, supply)
    other, second = _assembled(tmp_path / "two", stack, supply)
    assert supply.installs == 4, "the first tree was taken as it is"
    assert (again.digest, other.digest) == (seen.digest, seen.digest)
    assert (second / "manifest.json").read_bytes() == (tree / "manifest.json").read_bytes()


def test_packages_of_spack_lie_in_their_folder_itself(tmp_path: Path) -> None:
    spack = SpackFiles(lock="0" * 64, settings="0" * 64)
    stack = replace(_stack(tmp_path, "a"), backend="spack", spack=spack)
    supply = _supply({"a": {"bin/a": "#!/bin/sh\n", ".spack/spec.json": "{}"}}, depth=False)
    hash_ = hash_of("a")
    supply.module_files[hash_] = {f"all/Core/a/1.0-{hash_[:7]}.lua": 'whatis("a")\n'}
    seen, tree = _assembled(tmp_path / "trees", stack, supply)
    assert seen.problems == ()
    assert _links(stack, tree) == {"bin/a": f"{small_trees.folder('a')}/bin/a"}


def test_of_several_cpu_targets_each_has_a_folder(tmp_path: Path) -> None:
    stack, targets = _stack(tmp_path / "root", "a", "b"), ("x86_64_v3", "x86_64_v4")
    packages = tuple(replace(one, target=target) for one, target in zip(stack.packages, targets, strict=True))
    stack = replace(stack, targets=targets, packages=packages)
    seen, tree = _assembled(tmp_path / "trees", stack, _supply({"a": {"bin/x": "1"}, "b": {"bin/x": "2"}}))
    assert [problem for problem in seen.problems if problem.kind is TreeProblemKind.VIEW] == []
    assert set(_links(stack, tree)) == {"x86_64_v3/bin/x", "x86_64_v4/bin/x"}


def test_a_stack_of_several_targets_may_keep_one_of_them(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    targets, files = ("x86_64_v3", "zen4"), {"a": {"bin/a": "1"}, "b": {"bin/b": "2"}}
    both = _stack(root, "a", "b", packages=("b",))
    packages = tuple(replace(package, target=target) for package, target in zip(both.packages, targets, strict=True))
    _published(tmp_path, root, replace(both, targets=targets, packages=packages), files)
    assert (root / "small/current/view/zen4/bin/b").is_file()
    _published(tmp_path, root, replace(_stack(root, "b"), target="zen4"), files)
    assert (root / "small/current/view/bin/b").is_file()
    assert published_stacks.wrong(root, "small") == {}


CONFLICTS: dict[str, tuple[Files, Files, tuple[str, ...], str, str]] = {
    "content": ({"bin/x": "1"}, {"bin/x": "2"}, (), "bin/x", ""),
    "same": ({"bin/x": "1"}, {"bin/x": "1"}, (), "", "a"),
    "same-link": ({"lib/l": ("l.1",), "lib/l.1": "1"}, {"lib/l": ("l.1",), "lib/l.1": "1"}, (), "", "a"),
    "link": ({"lib/l": ("l.1",), "lib/l.1": "1"}, {"lib/l": ("l.2",), "lib/l.2": "2"}, (), "lib/l", ""),
    "executable": ({"bin/x": "1"}, {"sbin/x": "2", "bin": ("sbin",)}, (), "bin/x", ""),
    "order": ({"bin/x": "1"}, {"bin/x": "2"}, ("b", "a"), "", "b"),
    "half-an-order": ({"bin/x": "1"}, {"bin/x": "2"}, ("b",), "bin/x", ""),
    "file-and-folder": ({"share/x": "1"}, {"share/x/y": "1"}, (), "share/x/y", ""),
    "folder-and-file": ({"share/x/y": "1"}, {"share/x": "1"}, (), "share/x", ""),
}


@pytest.mark.parametrize(("a", "b", "order", "path", "winner"), CONFLICTS.values(), ids=CONFLICTS.keys())
def test_two_packages_with_one_path_and_other_content_are_named(
    tmp_path: Path, a: Files, b: Files, order: tuple[str, ...], path: str, winner: str
) -> None:
    stack = _stack(tmp_path / "root", "a", "b", order=order)
    seen, tree = _assembled(tmp_path / "trees", stack, _supply({"a": a, "b": b}))
    named = [problem for problem in seen.problems if problem.kind is TreeProblemKind.VIEW]
    assert [problem.path.partition("/")[2].partition("/")[2] for problem in named] == ([path] if path else [])
    assert all("a@1.0" in problem.detail and "b@1.0" in problem.detail for problem in named)
    if winner:
        assert set(_links(stack, tree).values()) == {
            f"{small_trees.folder(winner)}/{winner}/1.0/{at}" for at in (a, b)[winner == "b"]
        }


def _published(folder: Path, root: Path, stack: StackInput, packages: Mapping[str, Files]) -> PublishedStack:
    _, tree = _assembled(folder / "trees", stack, _supply(packages))
    target, tested = ReleaseTarget(root=str(root), keep=2), TestedStack(run="run-1", results=published_stacks.RESULTS)
    made = StackMaking(stack=stack, run=published_stacks.RUN)
    release = stack_publication.stage(tree, target, tested, made)
    return published_stacks.publish(PublishRequest(release=release, target=target, secrets=root.parent, by="run-1"))


def _exported(root: Path, version: str, target: Path) -> list[str]:
    """Return the names in the layer of a version's image."""
    stack_image.export(root, published_stacks.look(root, "small"), version, (), target)
    (layer,) = (path for path in (target / "blobs/sha256").iterdir() if path.read_bytes()[:4] == b"\x28\xb5\x2f\xfd")
    plain = subprocess.run(["zstd", "-d", "-c", str(layer)], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
        return archive.getnames()


def test_a_view_is_published_verified_and_removed_with_its_version(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    first = _published(tmp_path, root, _stack(root, "a"), {"a": PROGRAM})
    view = root / "small/current/view"
    assert (view / "bin/a").read_text() == PROGRAM["bin/a"]
    assert os.readlink(view).startswith("../../../packages/view-small-")
    assert (first.packages, first.missing_packages, first.wrong_packages) == (1, (), ())
    assert published_stacks.wrong(root, "small") == {}
    assert _published(tmp_path, root, _stack(root, "a"), {"a": PROGRAM}).unchanged
    assert list(stack_detachment.external_links(root, published_stacks.look(root, "small"), NO_FACTORY)) == []
    names = _exported(root, first.version, tmp_path / "image")
    assert f"{str(root).strip('/')}/small/versions/{first.version}/view" in names
    assert f"{str(root).strip('/')}/packages/{view.resolve().name}/bin/a" in names
    gone = view.resolve()

    second = _published(tmp_path, root, _stack(root, "a", "b"), {"a": PROGRAM, "b": {"bin/b": "#!/bin/sh\n"}})
    assert second.packages_added == ("b@1.0",)
    assert (view / "bin/b").is_file()
    without = replace(_stack(root, "a", "b"), view=None)
    third = _published(tmp_path, root, without, {"a": PROGRAM, "b": {"bin/b": "#!/bin/sh\n"}})
    assert not view.exists(), "a version without a view has none"
    assert (third.removed, gone.exists()) == ((first.version,), False)

    (root / f"small/versions/{second.version}/view").unlink()
    assert published_stacks.wrong(root, "small") == {f"small/versions/{second.version}/view": "is missing"}
    (root / f"small/versions/{second.version}/view").symlink_to("../../../packages")
    assert (
        "instead of ../../../packages/view-small-" in published_stacks.wrong(root, "small")[f"small/versions/{second.version}/view"]
    )


def test_a_file_that_somebody_adds_to_a_view_is_found(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    _published(tmp_path, root, _stack(root, "a"), {"a": PROGRAM})
    view = (root / "small/current/view").resolve()
    (view / "bin/more").symlink_to("/etc/passwd")
    assert published_stacks.wrong(root, "small") == {f"packages/{view.name}/bin/more": "is listed nowhere"}
