"""The pipeline of software stacks: load the spec, read lock and build cache, and plan the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace as with_fields

from steps import __version__
from steps.contract.runs.revision import SpecSource
from workflows.app.run_options import Pipeline, Wish
from workflows.app.runs import build_retries
from workflows.app.specs import file_origins
from workflows.app.stacks import build_durations
from workflows.engines.folders import StateFolder
from workflows.softwarestack import stack_resolution
from workflows.softwarestack.stack_resolution import ResolvedStack
from workflows.softwarestack.stack_spec import StackSpec, load_stack
from workflows.spec import Issue, SpecErrors

if TYPE_CHECKING:
    from workflows.plan.model import Plan

CACHE = "stacks/cache"
"""Folder of the run store with the build cache of stacks whose spec names none."""
_UNLISTED_FIX = "none is needed for pods that can read it: each asks for its own package"
_UNLISTED_SOURCE = "https://github.com/opencontainers/distribution-spec/blob/main/spec.md#listing-tags"
_OTHERS = {
    "Cluster": (
        "this is the spec of a cluster, and none of a stack",
        "`bringup init --stack` writes one; `bringup run {path}` takes this",
    ),
    "Image": ("this is the spec of a node image, and none of a stack", "`bringup image build {path}` takes it"),
}
"""Kinds of files that are no stack spec, each with the problem and the fix to print if it is given as one."""


def read(spec: str) -> tuple[Path, StackSpec]:
    """Return path and content of the stack spec that an argument names. Raises NoSpec and SpecErrors."""
    path = Path(spec)
    if not path.exists():
        from workflows.app.specs.sources import NoSpec

        raise NoSpec(f"{spec!r} is no file", hint="give the path of a stack spec, or write one with `bringup init --stack`")
    try:
        return path, load_stack(path)
    except SpecErrors:
        from workflows.app.specs import sources

        sources.refuse_kinds(path, _OTHERS)
        raise


def resolve(path: Path, loaded: StackSpec, source: SpecSource | None = None) -> ResolvedStack:
    """Return the resolved stack of a spec. Raises `LockError` for a lock or a file that cannot be used.

    `source` is the commit from which the spec's folder was read, if that folder is no work tree.
    """
    folder = path.absolute().parent
    resolved = stack_resolution.resolve(loaded, folder)
    files = [path, folder / loaded.lock_path, *(folder / name for name in (*loaded.reframe, loaded.factory) if name)]
    commits = source.commit if source else file_origins.commits_of(files)
    stack = with_fields(resolved.stack, origin=f"{commits}, on bringup {__version__}")
    return replace(resolved, stack=stack)


def _plan(
    path: Path,
    loaded: StackSpec,
    wish: Wish,
    *,
    resolved: ResolvedStack | None = None,
    cached: Iterable[str] | None = None,
    at_once: int = 0,
) -> Plan:
    from workflows.softwarestack.stack_build_plan import compile_stack  # a stack that has not changed needs no plan

    stack = resolved or resolve(path, loaded, wish.source)
    available, notes = listed_here(loaded, path.absolute().parent) if cached is None else (cached, ())
    builds = stack.planned(available, build_durations.measured_here())
    plan = compile_stack(loaded, stack, builds, wish.until, again=wish.again, at_once=at_once)
    issues = (Issue("build_cache", "warning", "cache", note, _UNLISTED_FIX, _UNLISTED_SOURCE) for note in notes)
    return replace(plan, issues=(*plan.issues, *issues))


STACK = Pipeline("stack", read, _plan, build_retries.ended)


def of_stack(path: Path, loaded: StackSpec, resolved: ResolvedStack, cached: frozenset[str], at_once: int) -> Pipeline:
    """Return the stack pipeline for a spec and a lock that are read already, with the packages that the cache has."""
    plan = partial(_plan, resolved=resolved, cached=cached, at_once=at_once)
    return replace(STACK, read=lambda _: (path, loaded), plan=plan)


def cached_here(loaded: StackSpec, spec_folder: Path, folder: Path | None = None) -> frozenset[str]:
    """Return the hashes of the packages in the build cache, as this machine sees it.

    The cache is the given folder, else that of the spec, else that of the run store. Secret files of a registry are looked up from
    `spec_folder`. Raises `LockError` if a folder cannot be read, SecretMissing and a StepError for a registry.
    """
    registry = loaded.cache_registry
    if folder is None and registry is not None:
        from workflows.app.stacks import cache_listing  # a folder needs no HTTP client

        return cache_listing.hashes(registry, loaded, spec_folder)
    place = folder or (Path(loaded.cache) if loaded.cache else StateFolder.of_environment().store / CACHE)
    return stack_resolution.cached_packages(place, loaded.publish.root)


def listed_here(loaded: StackSpec, spec_folder: Path, folder: Path | None = None) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the hashes of `cached_here`, or none with a sentence for people if this machine cannot read the registry.

    This is for what only tells or what pods do. Raises `LockError` as `cached_here` does.
    """
    registry = loaded.cache_registry
    if folder is not None or registry is None:
        return cached_here(loaded, spec_folder, folder), ()
    from workflows.app.stacks import cache_listing  # a folder needs no HTTP client

    return cache_listing.listed(registry, loaded, spec_folder)
