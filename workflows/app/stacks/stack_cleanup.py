"""The use case of `bringup stack gc`: remove what no version, lock or recent run needs, in published roots and in the store."""

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from steps.clients.clock import RealClock
from steps.softwarestack import task_input
from steps.softwarestack.cache import store_collection
from steps.softwarestack.cache.build_cache import BuildCache
from steps.softwarestack.cache.store_collection import StoreItem
from steps.softwarestack.contract.stack_input import BuildCacheLocation
from steps.softwarestack.publication import package_checks
from steps.softwarestack.publication.package_store import PackageStore
from steps.softwarestack.publication.stack_kind import local_tree
from steps.softwarestack.tree import tree_assembly
from workflows.app.release_trees import NoTree
from workflows.app.run_options import UsageError
from workflows.app.stacks import stack_pipeline, stack_plans, stack_trees
from workflows.engines.folders import StateFolder
from workflows.softwarestack.stack_spec import StackSpec

LEFTOVER_AGE = 86400.0
"""Seconds after which half written files of the build cache count as left by a killed build: the longest build takes hours."""


class RootCleanup(Struct, frozen=True, kw_only=True):
    """Result in one published root: packages that went, or would go, remains of killed publications, packages that stay."""

    location: str
    removed: list[str]
    leftovers: list[str]
    kept: int


class StackCleanup(Struct, frozen=True, kw_only=True):
    """Result of a garbage collection: published roots, assembled trees of the store, and entries of build caches."""

    roots: list[RootCleanup]
    trees: list[StoreItem]
    packages: list[StoreItem]


def collect(named: Sequence[str], actor: str, *, recent: float, packages: bool, dry_run: bool) -> StackCleanup:
    """Remove what is not needed in the roots that `named` folders and specs mean, and trees unused for `recent` seconds.

    With `packages`, entries of the build caches of the named specs go too: all that no lock of a named spec and no version in its
    published root names, and that are older than `recent`. Raises before anything is removed if a manifest or lock is unreadable.
    """
    folders = [name for name in named if not Path(name).is_file()]
    if packages and (folders or not named):
        message = f"--packages: {folders[0] if folders else 'nothing'} is no stack spec, and only specs name build caches"
        raise UsageError(f"{message}; name each spec whose packages stay")
    places = {_root_of(name): None for name in named}
    cached = _unneeded_entries(named, recent, dry_run=True) if packages else []  # reads every lock before anything is removed
    roots = [_collect_root(place, actor, dry_run=dry_run) for place in places]
    trees = StateFolder.of_environment().store / task_input.STACKS / tree_assembly.TREES
    removed = store_collection.collect_trees(trees, recent, dry_run=dry_run)
    if packages and not dry_run:
        cached = _unneeded_entries(named, recent, dry_run=False)
    return StackCleanup(roots=roots, trees=list(removed), packages=cached)


def _root_of(name: str) -> str:
    with stack_trees.opened(name, "") as opened_tree:
        return opened_tree.place.root


def _collect_root(root: str, actor: str, *, dry_run: bool) -> RootCleanup:
    done = PackageStore(local_tree(Path(root)), Path(root), RealClock()).collect(actor, dry_run=dry_run)
    return RootCleanup(location=root, removed=list(done.removed), leftovers=list(done.leftovers), kept=done.kept)


def _unneeded_entries(specs: Sequence[str], recent: float, *, dry_run: bool) -> list[StoreItem]:
    """Return the entries of the specs' build caches that nothing needs; unless `dry_run`, they are removed."""
    kept: dict[tuple[str, str], set[str]] = {}
    for name in specs:
        _, spec = stack_pipeline.read(name)
        if spec.cache_registry is not None:
            message = f"--packages: {name} has its build cache in a registry, whose own clean-up removes packages"
            raise UsageError(f"{message}; leave the spec out, or --packages")
        hashes = kept.setdefault((_cache_of(spec), spec.publish.root), set())
        hashes |= set(stack_plans.graph_of(name).nodes)
        hashes |= _published_hashes(Path(spec.publish.root))
    items: list[StoreItem] = []
    for (folder, root), hashes in kept.items():
        cache = BuildCache(BuildCacheLocation(folder=folder), root)
        items += store_collection.collect_entries(cache.folder, hashes, recent, dry_run=dry_run)
        if not dry_run:
            cache.remove_leftovers(LEFTOVER_AGE, time.time())
    return items


def _cache_of(spec: StackSpec) -> str:
    return str(spec.cache or StateFolder.of_environment().store / stack_pipeline.CACHE)


def _published_hashes(root: Path) -> set[str]:
    """Return the hashes of all packages that versions in a root name. Raises Refused if a manifest cannot be read."""
    if not root.is_dir():
        raise NoTree(f"{root} is no folder of this machine", "mount it: versions in it say which packages stay")
    return set(package_checks.named_packages(root))
