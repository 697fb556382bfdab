"""Assembly of a tree: whole or absent, reused if whole, made anew if the disk lost bytes, with a manifest of equal bytes."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from steps.errors import BadTask
from steps.softwarestack.contract import package_files
from steps.softwarestack.contract.package_files import LISTING
from steps.softwarestack.contract.stack_input import StackInput, StackPackage, StackTestCase
from steps.softwarestack.contract.stack_release import MANIFEST, decode_manifest
from steps.softwarestack.contract.tree_check import TreeObservation, TreeProblemKind
from steps.softwarestack.publication import package_listing
from steps.softwarestack.tree import tree_assembly
from steps.softwarestack.tree.link_checks import TraceRules
from tests.unit.softwarestack import small_trees
from tests.unit.softwarestack.small_trees import HandmadePackages, folder, package

RULES = TraceRules(workspaces=("/build",))
REPOSITORY = Path(__file__).parents[3]


def two(*tests: StackTestCase) -> StackInput:
    return small_trees.stack(package("lib"), package("app", ["lib"]), tests=tests)


def source() -> HandmadePackages:
    packages = HandmadePackages()
    packages.add("lib", {"lib/data": "1", "lib/link": ("data",)})
    packages.add("app", {"bin/app": "#!/bin/sh\necho app\n"})
    return packages


def assembled(trees: Path, packages: HandmadePackages, stack: StackInput | None = None) -> TreeObservation:
    return tree_assembly.assemble(trees, stack or two(), packages, RULES)


def test_each_cpu_target_has_its_modules_beside_the_choice(tmp_path: Path) -> None:
    packages, targets = HandmadePackages(), ("x86_64_v3", "x86_64_v4")
    for target in targets:
        packages.add(f"app_{target}", {"bin/app": "#!/bin/sh\necho app\n"}, at="Core/app/1.0")
    members = [msgspec.structs.replace(package(f"app_{target}", module="Core/app/1.0"), target=target) for target in targets]
    stack = msgspec.structs.replace(small_trees.stack(*members), targets=targets)
    seen = assembled(tmp_path, packages, stack)
    assert seen.problems == ()
    assert seen.modules == ("modules/best/target-small.lua", *(f"modules/{target}/all/Core/app/1.0.lua" for target in targets))
    manifest = decode_manifest((place_of(tmp_path, seen) / MANIFEST).read_bytes())
    assert (manifest.target, manifest.targets, [one.target for one in manifest.packages]) == ("", targets, list(targets))
    choice = (place_of(tmp_path, seen) / "modules/best/target-small.lua").read_text()
    rows = [line.strip() for line in choice.splitlines() if line.strip().startswith("{ name =")]
    assert [row.split('"')[1] for row in rows] == ["x86_64_v4", "x86_64_v3"]
    assert '"/software/small/current/modules/x86_64_v3/all/Core"' in rows[1]
    assert "sse3" not in rows[1].split(), "Linux calls it pni"

    packages.module_files[small_trees.hash_of("app_x86_64_v4")] = {}
    lost = assembled(tmp_path, packages, stack)
    assert [(problem.kind, problem.detail) for problem in lost.problems] == [
        (TreeProblemKind.MISSING, "no file of module x86_64_v4/Core/app/1.0")
    ]


def place_of(trees: Path, seen: TreeObservation) -> Path:
    return tree_assembly.tree_folder(trees, seen.digest)


def test_a_tree_has_packages_modules_and_a_manifest(tmp_path: Path) -> None:
    seen = assembled(tmp_path, source())
    tree = place_of(tmp_path, seen)
    assert seen.problems == ()
    assert [one.folder for one in seen.packages] == [folder("lib"), folder("app")]
    assert seen.modules == ("modules/all/Core/app/1.0.lua", "modules/all/Core/lib/1.0.lua")
    assert (seen.files, seen.elf_files) == (5, 0)
    assert (tree / "packages" / folder("lib") / "lib/link").read_text() == "1"
    manifest = decode_manifest((tree / MANIFEST).read_bytes())
    assert manifest.root == "/software"
    assert [file.name for file in manifest.files] == list(seen.modules)
    for one in manifest.packages:
        place = tree / "packages" / one.folder
        listed = package_listing.list_package(place)
        assert package_files.decode((place / LISTING).read_bytes()) == tuple(sorted(listed, key=lambda file: file.path))
        assert one.content == package_files.digest(listed)


def test_equal_inputs_give_equal_manifests(tmp_path: Path) -> None:
    manifests = []
    for name in ("a", "b"):
        seen = assembled(tmp_path / name, source())
        manifests.append((seen.digest, (place_of(tmp_path / name, seen) / MANIFEST).read_bytes()))
    assert manifests[0] == manifests[1]


def test_a_whole_tree_is_reused(tmp_path: Path) -> None:
    packages = source()
    first = assembled(tmp_path, packages)
    second = assembled(tmp_path, packages)
    assert packages.installs == 2
    assert second.digest == first.digest
    other = assembled(tmp_path, packages, two(StackTestCase(name="t", command=("true",))))
    assert (packages.installs, other.digest) == (2, first.digest)
    assert decode_manifest((place_of(tmp_path, other) / MANIFEST).read_bytes()).tests == ("t",)


@pytest.mark.parametrize("damage", ["changed", "lost", "added", "executable", "manifest"])
def test_a_damaged_tree_is_made_anew(tmp_path: Path, damage: str) -> None:
    packages = source()
    tree = place_of(tmp_path, assembled(tmp_path, packages))
    data = tree / "packages" / folder("lib") / "lib/data"
    if damage == "changed":
        data.write_text("2")
    elif damage == "lost":
        data.unlink()
    elif damage == "added":
        data.with_name("more").write_text("")
    elif damage == "executable":
        data.chmod(0o755)
    else:
        (tree / MANIFEST).write_text(json.dumps({"name": "small"}))
    seen = assembled(tmp_path, packages)
    assert packages.installs == 4
    assert seen.problems == ()
    assert data.read_text() == "1"
    assert [path.name for path in tmp_path.iterdir() if ".part" in path.name] == []


_KILLED = """
import sys
from pathlib import Path
from tests.unit.softwarestack import test_tree_assembly
packages = test_tree_assembly.source()
def wait(package):
    if package.name == "app":
        print("half", flush=True)
        sys.stdin.read()
packages.before_install = wait
test_tree_assembly.assembled(Path(sys.argv[1]), packages)
"""


def test_a_killed_assembly_leaves_nothing_that_is_taken_for_a_tree(tmp_path: Path) -> None:
    words = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(REPOSITORY)!r})\n{_KILLED}", str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout
        assert child.stdout.readline() == "half\n"
        child.send_signal(signal.SIGKILL)
        child.wait(30)
    left = [path.name for path in tmp_path.iterdir() if path.is_dir()]
    assert len(left) == 1
    assert ".part" in left[0]
    seen = assembled(tmp_path, source())
    assert seen.problems == ()
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == [place_of(tmp_path, seen)]


def test_an_install_that_fails_leaves_nothing(tmp_path: Path) -> None:
    packages = source()

    def fail(one: StackPackage) -> None:
        if one.name == "app":
            raise OSError(28, "No space left on device")

    packages.before_install = fail
    with pytest.raises(OSError, match="No space"):
        assembled(tmp_path, packages)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_packages_that_the_cache_lacks_are_named_and_nothing_is_made(tmp_path: Path) -> None:
    packages = HandmadePackages()
    packages.add("app")
    seen = assembled(tmp_path, packages)
    assert [(one.path, one.kind) for one in seen.problems] == [(f"packages/{folder('lib')}", TreeProblemKind.MISSING)]
    assert (seen.digest, packages.installs) == ("", 0)


def test_one_module_file_of_two_packages_is_a_problem(tmp_path: Path) -> None:
    packages = source()
    packages.add("lib", at="Core/app/1.0")
    seen = assembled(tmp_path, packages)
    assert [one.detail for one in seen.problems] == ["lib@1.0 and app@1.0 both bring this module file"]


def test_a_module_of_the_lock_without_a_file_is_a_problem(tmp_path: Path) -> None:
    packages = source()
    packages.add("lib", at="Core/other/1.0")
    seen = assembled(tmp_path, packages)
    assert [one.detail for one in seen.problems] == ["no file of module Core/lib/1.0"]


def test_links_among_module_files_are_refused(tmp_path: Path) -> None:
    packages = source()
    packages.module_files[small_trees.hash_of("app")]["all/Core/x"] = ("/etc/passwd",)  # type: ignore[assignment]
    with pytest.raises(BadTask, match=r"modules/all/Core/x is a link"):
        assembled(tmp_path, packages)


def test_many_problems_are_counted_and_some_of_each_kind_are_named(tmp_path: Path) -> None:
    packages = source()
    packages.add("lib", {f"lib/{number}": ("gone",) for number in range(30)} | {"bin/s": "#!/build/sh\n"})
    seen = assembled(tmp_path, packages)
    assert len(seen.problems) + seen.total_problems == 32
    assert {one.kind for one in seen.problems} >= {TreeProblemKind.DANGLING_LINK, TreeProblemKind.SHEBANG}
    assert len(seen.problems) == 12
