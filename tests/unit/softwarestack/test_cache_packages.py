"""A tree from a real build cache: packages, module files for this stack's place, and entries that were tampered with."""

from pathlib import Path
from typing import IO

import pytest

from steps.softwarestack.cache import package_packing
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_storage import CacheEntry, CacheError
from steps.softwarestack.cache.cache_packages import CachePackages
from steps.softwarestack.cache.package_packing import PackedContent
from steps.softwarestack.contract.stack_input import StackInput
from steps.softwarestack.tree import tree_assembly
from steps.softwarestack.tree.link_checks import TraceRules
from tests.unit.softwarestack import small_trees
from tests.unit.softwarestack.small_trees import HandmadePackages, folder, package

OTHER = f"{small_trees.ROOT}/other/current/modules"
"""Folder of modules of the stack that built the packages."""


def filled(tmp_path: Path, config: str = "") -> StackInput:
    """A stack whose packages another stack has put into the cache; package lib has `config` as its configuration file."""
    stack = small_trees.stack(package("lib"), package("app", ["lib"]), cache=tmp_path / "cache")
    source = HandmadePackages()
    files: dict[str, str | bytes | tuple[str]] = {"lib/data": "1", "lib/link": ("data",)}
    files |= {"etc/lib.conf": config} if config else {}
    source.add("lib", files, f'prepend_path("MODULEPATH", "{OTHER}/all/More")')
    source.add("app", {"bin/app": "#!/bin/sh\n"})
    cache = BuildCache(stack.cache, stack.root)
    for one in stack.packages:
        prefix, modules = tmp_path / "built" / one.name, tmp_path / "built" / f"{one.name}-modules"
        prefix.parent.mkdir(exist_ok=True)
        source.install(one, prefix, modules)

        def write(
            out: IO[bytes], prefix: Path = prefix, modules: Path = modules, names: tuple[str, ...] = source.modules(one)
        ) -> PackedContent:
            place = f"{small_trees.ROOT}/packages/{prefix.name}"
            return package_packing.pack(prefix, modules, names, place=place, modules_root=OTHER, out=out)

        entry = CacheEntry(hash=one.hash, title=one.title, root=stack.root, archive="", size=0, modules=(), members=0, unpacked=0)
        cache.put(entry, write)
    return stack


def test_packages_of_another_stack_get_this_stacks_modules(tmp_path: Path) -> None:
    stack = filled(tmp_path)
    seen = tree_assembly.assemble(tmp_path / "trees", stack, CachePackages(stack), TraceRules())
    assert seen.problems == ()
    tree = tree_assembly.tree_folder(tmp_path / "trees", seen.digest)
    assert (tree / "packages" / folder("lib") / "lib/link").read_text() == "1"
    text = (tree / "modules/all/Core/lib/1.0.lua").read_text()
    assert f"{small_trees.MODULES}/all/More" in text
    assert OTHER not in text
    assert sorted(path.name for path in (tree / "packages").iterdir()) == sorted([folder("lib"), folder("app")])


def test_a_package_that_the_cache_lacks_is_named(tmp_path: Path) -> None:
    stack = filled(tmp_path)
    lacking = small_trees.stack(*stack.packages, package("extra"), cache=tmp_path / "cache")
    seen = tree_assembly.assemble(tmp_path / "trees", lacking, CachePackages(lacking), TraceRules())
    assert [problem.path for problem in seen.problems] == [f"packages/{folder('extra')}"]
    with pytest.raises(FileNotFoundError):
        CachePackages(lacking).install(lacking.packages[2], tmp_path / "x", tmp_path / "y")


def test_a_tampered_archive_makes_no_tree(tmp_path: Path) -> None:
    stack = filled(tmp_path)
    (archive,) = (tmp_path / "cache").rglob(f"{small_trees.hash_of('app')}-*.tar.zst")
    data = bytearray(archive.read_bytes())
    data[-1] ^= 1
    archive.write_bytes(data)
    with pytest.raises(CacheError, match="its entry says"):
        tree_assembly.assemble(tmp_path / "trees", stack, CachePackages(stack), TraceRules())
    assert [path for path in (tmp_path / "trees").iterdir() if path.is_dir()] == []
