"""Checks of an assembled tree, kind by kind, on trees that are written by hand."""

import contextlib
import os
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from steps.contract.detachment import Factory
from steps.errors import BadTask
from steps.softwarestack.contract import package_files
from steps.softwarestack.contract.stack_input import StackInput
from steps.softwarestack.publication import package_listing
from steps.softwarestack.tree import link_checks, tree_assembly, tree_scan
from steps.softwarestack.tree.link_checks import SystemLibraries, TraceRules, TreePlan, TreeView
from tests.unit.softwarestack import small_trees
from tests.unit.softwarestack.elf_writer import elf
from tests.unit.softwarestack.small_trees import HandmadePackages, folder, package, place

LOADER = "/lib64/ld-linux-x86-64.so.2"
SYSTEM = SystemLibraries(names=frozenset({"libc.so.6", "libm.so.6"}), folders=("/opt/site/lib",))
RULES = TraceRules(workspaces=("/build",), factory=Factory(hosts=("builder7.example.org",), folders=("/srv/store",)))
ON_SYSTEM = {"/bin/sh", "/usr/bin/env", LOADER, "/usr/lib/site/libsite.so.1", "/etc/ssl/cert.pem"}
Files = Mapping[str, str | bytes | tuple[str]]


def two() -> StackInput:
    """Package app, which needs lib."""
    return small_trees.stack(package("lib"), package("app", ["lib"]))


def findings(tmp_path: Path, app: Files, *lines: str, library: Files | None = None) -> list[str]:
    """The problems of a tree with packages lib and app as `kind path: detail`; `lines` are for the module of app."""
    source, stack = HandmadePackages(), two()
    source.add("lib", {"lib/libone.so.1": elf(["libc.so.6"], soname="libone.so.1"), **(library or {})})
    source.add("app", app, *lines)
    for one in stack.packages:
        (tmp_path / "packages").mkdir(exist_ok=True)
        source.install(one, tmp_path / "packages" / folder(one.name), tmp_path / "modules")
    plan = TreePlan(
        root=stack.root,
        stack=stack.name,
        closures={folder("lib"): (), folder("app"): (folder("lib"),)},
        system=SYSTEM,
        exists=lambda path: path in ON_SYSTEM,
        known=frozenset({"cmake-3.1-0123456789ab"}),
        expected_modules=("Core/app/1.0", "Core/lib/1.0"),
        rules=RULES,
    )
    view = TreeView(listing=tree_scan.scan(tmp_path, RULES), plan=plan)
    own = f"packages/{folder('app')}/"
    return [f"{one.kind} {one.path.removeprefix(own)}: {one.detail}" for one in link_checks.findings(view)]


GOOD: dict[str, str | bytes | tuple[str]] = {
    "bin/app": elf(["libone.so.1", "libc.so.6"], runpath=f"{place('lib')}/lib", interpreter=LOADER),
    "bin/origin": elf(["libown.so.3"], runpath="$ORIGIN/../lib", interpreter=LOADER),
    "lib/libown.so.3": elf(["libm.so.6"], soname="libown.so.3"),
    "lib/libown.so": ("libown.so.3",),
    "lib64": ("lib",),
    "bin/script": "#!/usr/bin/env bash\nexec app\n",
    "bin/python-script": f"#!{place('lib')}/bin/run -E\n",
    "bin/tcsh-script": "#!/bin/tcsh -f\n",
    "lib/other.so": (f"{place('lib')}/lib/libone.so.1",),
    "share/certs.pem": ("/etc/ssl/cert.pem",),
    "lib/libgpu.so": elf(["libcuda.so.1"], rpath="/usr/lib/x86_64-linux-gnu:/opt/site/lib"),
    "include/config.h": '#define BUILT_IN "/build/app"\n',
    "easybuild/app.log": "built in /build/app on builder7.example.org\n",
    "lib/libbuilt.so": elf(runpath=f"{small_trees.ROOT}/packages/cmake-3.1-0123456789ab/lib"),
    "lib/plugins/a.so": elf(["libown.so.3"]),
    "share/broken-on-purpose.o": b"\x7fELF" + bytes(30),
}


def test_a_good_tree_has_no_problem(tmp_path: Path) -> None:
    assert findings(tmp_path, GOOD, library={"bin/run": "#!/bin/sh\n"}) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"lib/a.so": ("a.so.1",)}, "dangling_link lib/a.so: it leads to a.so.1, which does not exist"),
        ({"a": ("b",), "b": ("a",)}, "dangling_link a: it leads to b, which does not exist"),
        ({"share/x": ("/usr/share/x",)}, "dangling_link share/x: it leads to /usr/share/x, which does not exist"),
        ({"share/x": ("/home/me/x",)}, "link_out share/x: it leads to /home/me/x, outside of /software and of the system"),
        ({"x": ("../../../../etc",)}, "link_out x: it leads out of the tree, to ../../../../etc"),
        ({"x": ("../../modules/all",)}, "link_out x: it leads out of the tree, to ../../modules/all"),
        ({"bin/a": elf(rpath="/build/app/lib")}, "rpath bin/a: its rpath has /build/app/lib, the workspace of a build"),
        ({"bin/a": elf(runpath="/opt/x")}, "rpath bin/a: its rpath has /opt/x, outside of /software/packages and of the system"),
        ({"bin/a": elf(runpath="lib")}, "rpath bin/a: its rpath has 'lib', which means the folder of whoever starts it"),
        (
            {"bin/a": elf(runpath="/software/packages/gone-1.0-0123456789ab/lib")},
            "rpath bin/a: its rpath has /software/packages/gone-1.0-0123456789ab/lib, "
            "and the stack has no package gone-1.0-0123456789ab",
        ),
        ({"bin/a": elf(["libx.so.1"])}, "library bin/a: it needs libx.so.1, which is in none of its rpaths"),
        ({"bin/a": elf(["libc.so.6"], interpreter="/lib/ld-musl.so.1")}, "library bin/a: its loader /lib/ld-musl.so.1 does not"),
        ({"lib/a.so": b"\x7fELF" + bytes(30)}, "library lib/a.so: this program or library cannot be loaded"),
        ({"bin/s": "#!/build/python/bin/python\n"}, "shebang bin/s: its interpreter /build/python/bin/python is not in the tree"),
        ({"bin/s": f"#!{place('lib')}/bin/none\n"}, f"shebang bin/s: its interpreter {place('lib')}/bin/none is not in the tree"),
        ({"bin/s": "#!python\n"}, "shebang bin/s: its interpreter python is no absolute path"),
        ({"bin/s": f"#!/bin/sh {'x' * 260}\n"}, "shebang bin/s: its first line has 270 bytes, Linux reads 255"),
        ({"lib/x.pc": "prefix=/build/app\n"}, "workspace lib/x.pc: its text names /build, the workspace of a build"),
        ({"bin/x": "#!/bin/sh\ngcc -I/build/app/include\n"}, "workspace bin/x: its text names /build, the workspace of a build"),
        ({"etc/app.conf": "mirror https://builder7.example.org/\n"}, "factory etc/app.conf: its text names builder7.example.org"),
        (
            {"lib/x.cmake": 'set(STORE "/srv/store/x")\n'},
            "factory lib/x.cmake: its text names /srv/store, a folder of the factory",
        ),
    ],
)
def test_each_problem_is_named(tmp_path: Path, files: Files, expected: str) -> None:
    problems = findings(tmp_path, files)
    assert any(problem.startswith(expected) for problem in problems), problems


@pytest.mark.parametrize(
    "text",
    ["prefix=${top}/build/x", "see ./build/x", "/home/me/build/x", "/building/x", "https://example.org/build/x"],
)
def test_another_folder_of_that_name_is_no_trace(tmp_path: Path, text: str) -> None:
    assert findings(tmp_path, {"lib/x.pc": text}) == []


PRIVATE = place("lib") + "/deep/private"
OWN_FOLDER = f'prepend_path("LD_LIBRARY_PATH", "{place("app")}/lib")'
STARTED = elf(["libtwo.so"], interpreter=LOADER)


@pytest.mark.parametrize(
    ("files", "lines", "missing"),
    [
        ({"bin/a": STARTED}, (), ["bin/a"]),
        ({"bin/a": STARTED}, (f'prepend_path("LD_LIBRARY_PATH", "{PRIVATE}")',), []),
        ({"bin/a": STARTED}, (f'prepend_path("LD_LIBRARY_PATH", "{PRIVATE}", ":")',), []),
        ({"bin/a": STARTED}, (f'prepend_path("CPATH", "{PRIVATE}")',), ["bin/a"]),
        ({"bin/a": elf(["libone.so.1"], interpreter=LOADER)}, (), ["bin/a"]),
        ({"bin/a": elf(["libone.so.1"], interpreter=LOADER, runpath=f"{place('lib')}/lib")}, (), []),
        ({"bin/a": elf(["libown.so"], interpreter=LOADER), "lib/libown.so": elf()}, (), ["bin/a"]),
        ({"bin/a": elf(["libown.so"], interpreter=LOADER), "lib/libown.so": elf()}, (OWN_FOLDER,), []),
        ({"bin/a": elf(["libown.so"], interpreter=LOADER, rpath="$ORIGIN/../lib"), "lib/libown.so": elf()}, (), []),
        ({"libexec/a": elf(["libown.so"], interpreter=LOADER), "lib/libown.so": elf()}, (), []),
        ({"lib/plugin.so": elf(["libtwo.so"])}, (), ["lib/plugin.so"]),
        ({"lib/plugin.so": elf(["libtwo.so"]), "lib/libown.so": elf(["libtwo.so"], runpath=PRIVATE)}, (), []),
    ],
)
def test_a_library_counts_where_the_loader_looks(tmp_path: Path, files: Files, lines: tuple[str, ...], missing: list[str]) -> None:
    """A library in the closure, or in the own package, is of no use to a program whose loader does not look there."""
    problems = findings(tmp_path, files, *lines, library={"deep/private/libtwo.so": elf()})
    assert [problem.split(":")[0] for problem in problems] == [f"library {path}" for path in missing]
    assert all("has it in another folder" in problem for problem in problems)


def test_a_module_of_the_dependency_opens_its_folder(tmp_path: Path) -> None:
    source, stack = HandmadePackages(), two()
    line = 'prepend_path("LD_LIBRARY_PATH", pathJoin(root, "deep/private"))'
    source.add("lib", {"deep/private/libtwo.so": elf()}, line)
    source.add("app", {"bin/a": elf(["libtwo.so"])})
    seen = tree_assembly.assemble(tmp_path, stack, source, RULES)
    assert seen.problems == ()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((f'setenv("X", "{small_trees.ROOT}/packages/gone-1.0-0123456789ab/x")',), "it names package gone-1.0-0123456789ab"),
        (('setenv("BUILD", "/build/x")',), "its text names /build, the workspace of a build"),
    ],
)
def test_modules_are_read(tmp_path: Path, lines: tuple[str, ...], expected: str) -> None:
    (problem,) = findings(tmp_path, {}, *lines)
    assert expected in problem


@pytest.mark.parametrize(("text", "expected"), [("", "empty or no text"), ("puts hello", "neither ends in .lua nor begins")])
def test_a_module_that_lmod_ignores_is_a_problem(tmp_path: Path, text: str, expected: str) -> None:
    source, stack = HandmadePackages(), small_trees.stack(package("app", module=""))
    source.add("app")
    source.module_files[small_trees.hash_of("app")] = {"all/Core/app/1.0": text}
    seen = tree_assembly.assemble(tmp_path, stack, source, RULES)
    assert [expected in problem.detail for problem in seen.problems] == [True]


def test_setuid_files_and_devices_are_refused(tmp_path: Path) -> None:
    for name in ("packages", "modules"):
        (tmp_path / name).mkdir()
    program = tmp_path / "packages/sudo"
    program.write_text("")
    program.chmod(0o4755)
    with pytest.raises(BadTask, match="setuid"):
        tree_scan.scan(tmp_path, RULES)


def test_a_scan_lists_packages_as_their_own_reader_does(tmp_path: Path) -> None:
    source = HandmadePackages()
    source.add("app", GOOD)
    app = package("app")
    (tmp_path / "packages").mkdir()
    source.install(app, tmp_path / "packages" / folder("app"), tmp_path / "modules")
    (tmp_path / "packages" / folder("app") / "empty/inner").mkdir(parents=True)
    listing = tree_scan.scan(tmp_path, RULES)
    mine = package_files.encode(tree_scan.package_files(listing, folder("app")))
    assert mine == package_files.encode(package_listing.list_package(tmp_path / "packages" / folder("app")))


def test_links_lead_where_the_kernel_says(tmp_path: Path) -> None:
    """Random trees of folders, files and links: each path ends where the kernel of this machine ends, or nowhere for both."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names, outcomes = ("a", "b", "c", "d"), Counter[str]()
    for number in range(80):
        root = tmp_path / str(number)
        (root / "packages").mkdir(parents=True)
        (root / "modules").mkdir()
        links = []
        for _ in range(25):
            path = root / "packages" / "/".join(chance.choices(names, k=chance.randint(1, 3)))
            with contextlib.suppress(OSError):
                # the kernel would follow links of parents, and write elsewhere than the name says
                if any(parent.is_symlink() for parent in (path, *path.parents)) or path.exists():
                    continue
                path.parent.mkdir(parents=True, exist_ok=True)
                kind = chance.random()
                if kind < 0.6:
                    path.symlink_to("/".join(chance.choices((*names, "..", "."), k=chance.randint(1, 4))))
                    links.append(path)
                elif kind < 0.8:
                    path.mkdir()
                else:
                    path.write_text("")
        plan = TreePlan(root="/software", stack="s", closures={}, system=SYSTEM, exists=lambda path: False)
        view = TreeView(listing=tree_scan.scan(root, RULES), plan=plan)
        for link in links:
            reached = link_checks.follow(view, link.relative_to(root).as_posix())
            outcomes["escapes" if reached.escapes else "inside" if reached.inside else "nowhere"] += 1
            if not reached.escapes:
                end = Path(os.path.realpath(link)).relative_to(root).as_posix() if link.exists() else ""
                assert reached.inside == end, (link, reached)
    assert len(outcomes) == 3, outcomes
    assert min(outcomes.values()) > 3, outcomes
