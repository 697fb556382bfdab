"""Checks before a software stack is built: no run starts if it is published already, or if it cannot be built from here."""

import contextlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

from steps.contract import release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.exit import ExitCode
from steps.contract.runs.revision import SpecSource
from steps.errors import StepError
from steps.softwarestack.contract import stack_release
from steps.softwarestack.contract.stack_input import PACKAGES
from steps.softwarestack.contract.stack_release import StackManifest, StackManifestError
from workflows.app.run_options import LOCAL, Pipeline, StartOptions, UsageError, Wish
from workflows.app.stacks import stack_pipeline
from workflows.softwarestack.stack_resolution import ResolvedStack
from workflows.softwarestack.stack_spec import PUBLISHED, StackSpec
from workflows.stages import STACK_ORDER

BUILD, _, TEST, _ = STACK_ORDER


class NotBuildable(ValueError):
    """Error for a stack that cannot be built or published from here; raised before a run starts."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class PreparedStack:
    """A checked build of a stack: its spec, what it resolves to, the packages that the cache has, options and pipeline.

    If `unchanged` is not empty, it says why no run is needed. `notes` are sentences for the person who starts the run.
    """

    loaded: StackSpec
    resolved: ResolvedStack
    wish: Wish
    pipeline: Pipeline
    unchanged: str = ""
    notes: tuple[str, ...] = ()


def prepare(spec: str, options: StartOptions, wish: Wish, at_once: int) -> PreparedStack:
    """Check a stack spec and return its build; no run is started. Raises UsageError, SpecErrors, LockError, NotBuildable."""
    if wish.until and wish.until not in STACK_ORDER:
        raise UsageError(f"--until {wish.until}: a stack has no such stage; stages are {', '.join(STACK_ORDER)}")
    path, loaded = stack_pipeline.read(spec)
    resolved = stack_pipeline.resolve(path, loaded, wish.source)
    is_local, publishes = options.engine == LOCAL, wish.until in ("", PUBLISHED)
    if not is_local:
        _require_pods(path, loaded, publishes, options.builder)
    # a run on Argo also installs the schedule, so there it starts whatever is published
    if (is_local or loaded.schedule is None) and not wish.again and not wish.until and (reason := unchanged(loaded, resolved)):
        return PreparedStack(loaded=loaded, resolved=resolved, wish=wish, pipeline=stack_pipeline.STACK, unchanged=reason)
    folder = path.absolute().parent
    cached, notes = (stack_pipeline.cached_here(loaded, folder), ()) if is_local else _cached_for_pods(loaded, folder)
    pipeline = stack_pipeline.of_stack(path, loaded, resolved, cached, at_once)
    prepared = PreparedStack(loaded=loaded, resolved=resolved, wish=wish, pipeline=pipeline, notes=notes)
    if wish.until == BUILD and not resolved.planned(cached).builds:
        return replace(prepared, unchanged=f"nothing to build: the build cache has all packages of {loaded.name}")
    if is_local:
        _require_cache(loaded, folder, builds=bool(resolved.planned(cached).builds))
    if is_local and publishes:
        _require_writable(loaded)
    if publishes and not wish.again:
        require_wanted(loaded, resolved)
    return prepared


def prepare_for_pods(path: Path, loaded: StackSpec, source: SpecSource) -> PreparedStack:
    """Check a stack spec of a Git commit, and return its build in pods; no run is started. Raises LockError, NotBuildable.

    Where this machine sees the published folder, as the pod of a schedule does, an unchanged stack needs no run, and one that a
    person rolled back from is refused.
    """
    wish = Wish(source=source)
    _require_pods(path, loaded, publishes=True)
    resolved = stack_pipeline.resolve(path, loaded, source)
    reason = unchanged(loaded, resolved)
    if not reason:
        require_wanted(loaded, resolved)
    # whatever the cache has: a commit has one plan, by which a build of it that goes on is known
    pipeline = stack_pipeline.of_stack(path, loaded, resolved, frozenset(), 0)
    return PreparedStack(loaded=loaded, resolved=resolved, wish=wish, pipeline=pipeline, unchanged=reason)


def _require_pods(path: Path, loaded: StackSpec, publishes: bool, builder: str = "") -> None:
    """Raise NotBuildable if pods lack a folder of this machine that the spec names, or if `builder` is no image of a schedule."""
    if publishes and loaded.publish.claim is None:
        problem = f"{path} cannot be published by pods: they have none of the folder publish.root"
        hint = "add publish.claim, a PersistentVolumeClaim of the home cluster with that folder; or build and test it there with"
        raise NotBuildable(problem, f"{hint} --until {TEST}, or leave out --engine argo")
    if reason := loaded.bound_to_machine:
        raise NotBuildable(f"{path} cannot be built in pods: {reason[0]}", reason[1])
    if loaded.schedule is not None and builder not in ("", loaded.builder):
        problem = f"--builder-image {builder} is another image than that of the spec, and the schedule builds with {loaded.builder}"
        raise NotBuildable(problem, "write it into the spec as builder, or leave out --builder-image")


def _cached_for_pods(loaded: StackSpec, folder: Path) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the packages that pods find in a registry, with `stack_pipeline.listed_here`; none for a cache in their run store."""
    return (frozenset(), ()) if loaded.cache_registry is None else stack_pipeline.listed_here(loaded, folder)


def _require_writable(loaded: StackSpec) -> None:
    """Raise NotBuildable if the folder that the spec publishes to is missing or may not be written."""
    from steps.clients.releases import local_transport

    root = Path(loaded.publish.root)
    if not root.is_dir():
        raise NotBuildable(f"publish.root {root} is no folder of this machine", "make it, or mount what it should be")
    if folders := local_transport.unwritable(root, loaded.name, PACKAGES):
        problem = f"this user may not write to publish.root {root} ({', '.join(folders)})"
        raise NotBuildable(problem, "give this user these folders, or build as the user that has them")


def require_wanted(loaded: StackSpec, resolved: ResolvedStack) -> None:
    """Raise NotBuildable if a person rolled back from this very stack: its publication would be refused after all builds."""
    from steps.softwarestack.publication import stack_kind

    with contextlib.suppress(StepError):  # an unreadable tree is the publication's to report
        tree = stack_kind.local_tree(Path(loaded.publish.root)).look(loaded.name)
        manifests = {version: stack_kind.manifest_of(tree, version) for version in tree.versions}
        alike = [version for version, manifest in manifests.items() if manifest and manifest.key == resolved.stack.key]
        rollback = None if tree.current in alike else release_layout.abandoning_rollback(tree.history, alike)
        if rollback is not None:
            problem = f"{release_layout.rolled_back_sentence(rollback)}, and this lock and these settings would publish it again"
            raise NotBuildable(problem, "correct the stack and lock again, or publish it on purpose: bringup stack build --again")


def _require_cache(loaded: StackSpec, folder: Path, *, builds: bool) -> None:
    """Raise if the build cache that the spec names may not be written: NotBuildable for a folder, a StepError for a registry.

    A registry is asked only if there are builds.
    """
    if (registry := loaded.cache_registry) is not None and builds:
        from workflows.app.stacks import cache_listing  # a folder needs no HTTP client

        cache_listing.require_push(registry, loaded, folder)
    if loaded.cache is None or registry is not None:
        return
    cache = Path(loaded.cache)
    nearest = next(path for path in (cache, *cache.parents) if path.exists())
    if not os.access(nearest, os.W_OK | os.X_OK):
        problem = f"this user may not write to {nearest}, where the build cache of the spec lies"
        raise NotBuildable(problem, "mount it writable, give this user that folder, or leave cache out")


def unchanged(loaded: StackSpec, resolved: ResolvedStack) -> str:
    """Return a sentence if the current version in a publish root on this machine is this very stack; else empty."""
    version = _published(loaded, resolved)
    return f"nothing changed: {version} of {loaded.name} is published from this lock and these settings" if version else ""


def _published(loaded: StackSpec, resolved: ResolvedStack) -> str:
    """Return the current version of the stack in a publish root on this machine if publishing would change nothing; else empty."""
    root = Path(loaded.publish.root)
    try:
        folder = (root / loaded.name / release_layout.CURRENT).resolve(strict=True)
        with (folder / stack_release.MANIFEST).open("rb") as file:
            data = file.read(stack_release.LARGEST_MANIFEST + 1)
        manifest = stack_release.decode_manifest(data)
    except (OSError, StackManifestError):
        return ""
    named = release_layout.version_name(release_layout.number_of(folder.name), digest_bytes(data))
    signed = loaded.publish.sign is None or (folder / stack_release.SIGNATURE).exists()
    is_same = manifest.key == resolved.stack.key and manifest.root == loaded.publish.root and named == folder.name
    return folder.name if is_same and signed and _is_whole(root, folder, manifest) else ""


def _is_whole(root: Path, folder: Path, manifest: StackManifest) -> bool:
    """Return True if all packages, files and links of a version are there, files with their sizes; contents are not read."""
    try:
        return (
            all((root / PACKAGES / package.folder).is_dir() for package in manifest.packages)
            and all((folder / file.name).stat().st_size == file.size for file in manifest.files)
            and all((folder / name).readlink() == Path(target) for name, target in manifest.links.items())
        )
    except OSError:
        return False
