"""Packages of a stack from the build cache, as the assembly of a tree reads them (`tree_assembly.PackageSupply`)."""

import os
import shutil
import tempfile
from pathlib import Path

from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.build_cache_storage import CacheEntry
from steps.softwarestack.cache.package_packing import PREFIX, install_modules, unpack
from steps.softwarestack.contract.stack_input import StackInput, StackPackage
from steps.softwarestack.contract.stack_release import MODULES


class CachePackages:
    """The packages of one stack in its build cache, by default that in the folder of the stack.

    All methods raise CacheError for entries that are tampered or not trusted.
    """

    def __init__(self, stack: StackInput, cache: BuildCache | None = None) -> None:
        self._stack, self._cache = stack, cache or BuildCache(stack.cache, stack.root)
        self._entries: dict[str, CacheEntry | None] = {}

    def archive(self, package: StackPackage) -> str:
        """Return the digest of a package's archive; empty if the cache has none."""
        entry = self._entry(package)
        return entry.archive if entry is not None else ""

    def modules(self, package: StackPackage) -> tuple[str, ...]:
        """Return the paths of a package's module files below the folder of modules, or of those of its target."""
        entry = self._entry(package)
        return entry.modules if entry is not None else ()

    def install(self, package: StackPackage, prefix: Path, modules: Path) -> None:
        """Unpack a package into `prefix`, and its module files below `modules`. Raises PackingError for a hostile archive."""
        entry = self._entry(package)
        if entry is None:
            raise FileNotFoundError(f"the build cache has no {package.title}")
        # beside the place, so that the package gets there by a rename
        with tempfile.TemporaryDirectory(prefix=f".{prefix.name}.", dir=prefix.parent) as name:
            folder = Path(name)
            with self._cache.open_archive(entry) as archive:
                content = unpack(archive, folder, place=self._stack.package_path(package), most=entry.unpacked)
            # a build knows no other targets: its module files name the folder of modules of a stack with its target alone
            below = "/".join(filter(None, (MODULES, self._stack.module_folder(package))))
            published = f"{self._stack.root}/{self._stack.name}/current/{below}"
            install_modules(folder, content.modules, modules, published)
            shutil.rmtree(folder / MODULES, ignore_errors=True)
            if (folder / PREFIX).exists():
                os.rename(folder / PREFIX, prefix)
            else:  # a package that only loads others has no files
                prefix.mkdir()

    def _entry(self, package: StackPackage) -> CacheEntry | None:
        if package.hash not in self._entries:
            self._entries[package.hash] = self._cache.entry(package.hash)
        return self._entries[package.hash]
