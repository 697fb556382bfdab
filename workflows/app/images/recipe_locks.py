"""Lock files of recipes: make or renew one, compare it with a newer one, and fetch the locked packages into the archive."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from steps.contract.plain_text import count
from steps.errors import Temporary
from steps.nodeimage.contract import debian
from steps.nodeimage.contract.resolved_recipe import Package, Recipe, ResolvedLayer
from steps.nodeimage.layer import package_archive
from workflows.app.images import recipes
from workflows.app.images.stored_images import IMAGES
from workflows.engines.folders import StateFolder
from workflows.nodeimage import lock_creation, lock_difference, lockfile, recipe_chain, recipe_resolution
from workflows.nodeimage.lock_difference import Feed, LockDifference, PackageChange
from workflows.nodeimage.lock_update import PackageDownload
from workflows.nodeimage.lockfile import Lock
from workflows.nodeimage.recipe_resolution import RecipeRequest
from workflows.podimage.errors import BuildError, FetchError

BY_PROXY = "it is asked by the proxy that http_proxy or https_proxy names (sudo drops both), else by that of apt's settings"


@dataclass(frozen=True, kw_only=True)
class NewLock:
    """A new lock of a recipe, and `before`, the lock that it replaces (None for the first one)."""

    request: RecipeRequest
    path: Path
    lock: Lock
    before: Lock | None
    is_written: bool = False
    """True if the lock file was changed; False if nothing was written, for instance because the file has this content already."""

    @property
    def changes(self) -> Sequence[PackageChange]:
        """Return the packages that were added, removed or changed since the lock before."""
        return self.difference().changes

    def difference(self, cves: Path | None = None) -> LockDifference:
        """Return all differences from the lock before, with vulnerabilities if `cves` is a feed of Debian's security tracker."""
        feed = Feed(cves, self.request.chain().foundation.release) if cves else None
        return lock_difference.compare_locks(self.before, self.lock, feed)

    def write(self) -> bool:
        """Write the new lock; returns False if the file has this content already."""
        return lock_creation.write(self.lock, self.path)


def lock_recipe(named: str, seeds: Sequence[Path]) -> NewLock:
    """Lock a recipe and write its lock file; an existing lock keeps its versions, but for packages that the recipe newly asks for.

    `seeds` are folders that may hold packages already.
    """
    request = recipes.asked(named)
    path = _own_lock(request, request.chain())
    before = _existing_lock(request, path)
    lock = lock_creation.update_lock(request, before, _bringing(request, seeds)) if before else lock_creation.create_lock(request)
    is_written = lock_creation.write(lock, path)
    return NewLock(request=request, path=path, lock=lock, before=before, is_written=is_written)


def newer_lock(named: str, only: Sequence[str], *, writable: bool) -> NewLock:
    """Return a lock with the newest versions of all packages, or only of those in `only`; nothing is written.

    Raises BuildError if `writable` and the spec uses the lock of a shipped recipe, or if `only` is given and no lock exists yet.
    """
    request = recipes.asked(named)
    chain = request.chain()
    path = _own_lock(request, chain) if writable else request.lock_path(chain)
    before = _existing_lock(request, path)
    if not only:
        return NewLock(request=request, path=path, lock=lock_creation.create_lock(request), before=before)
    if before is None:
        raise BuildError(f"the lock {path} is not there: nothing has a version that could stay", hint=f"make it: {request.command}")
    return NewLock(
        request=request, path=path, lock=lock_creation.update_lock(request, before, _bringing(request), only), before=before
    )


def _own_lock(request: RecipeRequest, chain: recipe_chain.Chain) -> Path:
    """Return the lock file that may be written. Raises BuildError for a spec that uses the lock of a shipped recipe."""
    if request.secrets is not None and not request.lock and chain.top.is_shipped:
        name = chain.top.spec.name
        raise BuildError(
            f"the spec takes recipe {name} with the lock that it comes with", hint=f"add lock: {name}.lock.json to the spec"
        )
    return request.lock_path(chain)


def _existing_lock(request: RecipeRequest, path: Path) -> Lock | None:
    """Return the existing lock, or None. Raises BuildError if it is damaged."""
    try:
        return lockfile.read(path, request.command) if path.exists() else None
    except BuildError as error:  # a new lock would need the damaged one, for the versions that stay
        hint = f"take it from Git, or remove it, which moves all to the newest, and {error.hint}"
        raise BuildError(str(error), hint=hint) from error


def _bringing(request: RecipeRequest, seeds: Sequence[Path] = ()) -> PackageDownload:
    """Return a function that fetches locked packages into the archive and returns their paths by digest. It raises FetchError."""
    chain = request.chain()
    images, layer = StateFolder.of_environment().store / IMAGES, ResolvedLayer(name="locked")
    foundation = chain.foundation
    recipe = Recipe(
        name=chain.top.spec.name,
        distribution=foundation.distribution,
        release=foundation.release,
        architecture=foundation.architecture,
        epoch=foundation.epoch,
        sources=tuple(entry.source for entry in request.sources(chain)),
        layers=(),
        kernel=foundation.kernel,
    )

    def bring(packages: Sequence[Package]) -> Mapping[str, Path]:
        subset = msgspec.structs.replace(recipe, layers=(msgspec.structs.replace(layer, packages=tuple(packages)),))
        filled = package_archive.fill(images, subset, lambda _: None, (*seeds, *debian.CACHES))
        if filled.away:
            raise FetchError(
                f"{count(filled.away, 'package')} of the earlier lock could not be fetched: {filled.problems[0]}",
                hint=f"run it again when the mirror answers; {BY_PROXY}",
            )
        lacking = {*filled.missing, *filled.wrong}
        usable = [package.sha256 for package in packages if f"{package.name}={package.version}" not in lacking]
        return {sha256: package_archive.path(images, sha256) for sha256 in usable}

    return bring


class NotKept(Temporary):
    """Temporary error: locked packages cannot be fetched into the archive now."""


def keep_packages(request: RecipeRequest, seeds: Sequence[Path] = ()) -> str:
    """Fetch a recipe's locked packages into this machine's archive; return a sentence with their number and size.

    Raises NotKept.
    """
    images = StateFolder.of_environment().store / IMAGES
    filled = package_archive.fill(images, recipe_resolution.resolve(request).recipe, lambda _: None, (*seeds, *debian.CACHES))
    if lacking := [*filled.missing, *filled.wrong]:
        why = f": {filled.problems[0]}" if filled.problems else ""
        hint = "run it again when the mirror answers" + (f"; {BY_PROXY}" if filled.is_only_away else "")
        raise NotKept(f"{count(len(lacking), 'package')} could not be kept{why}", hint=hint)
    archive = images / package_archive.FOLDER
    return f"{archive}: all {filled.packages} kept, {filled.fetched} of them now, {filled.bytes / 1e6:.0f} MB"
