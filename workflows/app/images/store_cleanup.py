"""The use case of `bringup image gc`: remove from the store what no recipe, published tree, pin or recent run needs."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct

from steps.contract.release_layout import VERSIONS, number_of
from steps.errors import StepError
from steps.nodeimage import garbage_collection
from steps.nodeimage.contract import image_manifest, resolved_recipe
from steps.nodeimage.garbage_collection import Collected, Roots
from steps.nodeimage.publishing import image_versions
from workflows.app.images import published_trees, recipes
from workflows.app.images.published_trees import TreeLogin
from workflows.app.images.stored_images import IMAGES
from workflows.app.run_options import UsageError
from workflows.app.specs import sources
from workflows.engines.folders import StateFolder
from workflows.engines.run_secrets import SecretMissing
from workflows.nodeimage import recipe_files, recipe_resolution
from workflows.podimage.errors import BuildError

SPEC = Path("image.yaml")
_REPAIR = "nothing was removed; repair or remove that version"


class SpecRoots(Struct, frozen=True, kw_only=True):
    """The roots of `./image.yaml`: its present build and its published versions, `versions` in number.

    `unlocked` is the name of the spec's lock file if that is missing; the roots then hold no present build.
    """

    roots: Roots
    versions: int
    unlocked: str = ""


class Cleanup(Struct, frozen=True, kw_only=True):
    """Result of a garbage collection; `own_spec` has the roots of `./image.yaml`, None if recipes were named or there is none."""

    collected: Collected
    own_spec: SpecRoots | None


def collect(
    named: Sequence[str],
    trees: Iterable[str],
    pins: Iterable[str],
    login: TreeLogin,
    *,
    recent: float,
    packages: bool,
    dry_run: bool,
) -> Cleanup:
    """Remove store entries that no root needs and nobody used in the last `recent` seconds; packages only with `packages`.

    Roots are the recipes and specs in `named` (if empty, the shipped recipes that have a lock, and `./image.yaml`), published
    `trees`, `pins`, and runs of the last `recent` seconds. Raises SpecErrors, BuildError or UsageError if one root cannot be read,
    so that nothing is removed.
    """
    home = StateFolder.of_environment()
    own_spec = None if named else _here(login)
    roots = garbage_collection.of_pins(pins) | (own_spec.roots if own_spec else Roots())
    for name in named or [name for name in recipe_files.shipped_names() if _locked(name)]:
        roots |= garbage_collection.of_recipe(recipe_resolution.resolve(recipes.asked(name)).recipe)
    for image in (image for tree in trees for image in _published(tree, login)):
        roots |= garbage_collection.of_manifest(image)
    for recipe in _of_runs(home, recent):
        roots |= garbage_collection.of_recipe(recipe)
    collected = garbage_collection.collect(home.store / IMAGES, roots, recent=recent, dry_run=dry_run, packages=packages)
    return Cleanup(collected=collected, own_spec=own_spec)


def _here(login: TreeLogin) -> SpecRoots | None:
    """Return the roots of `./image.yaml`, the default spec of other commands; None if this folder has no image spec.

    Raises SpecErrors, and BuildError if the spec's lock or published tree cannot be read; the caller then removes nothing.
    """
    if not SPEC.is_file() or sources.kind_of(SPEC) != sources.IMAGE_SPEC:
        return None
    request = recipes.asked(str(SPEC))
    lock = request.lock_path(request.chain())
    # if its folder is missing too, a disk may not be mounted
    unlocked = lock.name if lock.parent.is_dir() and not os.path.lexists(lock) else ""
    result = Roots() if unlocked else garbage_collection.of_recipe(recipe_resolution.resolve(request).recipe)
    versions = 0
    try:
        for image in _where_a_spec_publishes(str(SPEC), login):
            result |= garbage_collection.of_manifest(image)
            versions += 1
    except published_trees.NoTree:  # nothing is published yet
        pass
    except (StepError, SecretMissing) as error:
        example = f"RECIPE (not {SPEC}, which has no lock)" if unlocked else str(SPEC)
        hint = f"nothing was removed; what stays can be named: bringup image gc {example}, which asks no tree"
        hint = f"{error.hint}; {hint}" if isinstance(error, SecretMissing) and error.hint else hint
        raise BuildError(f"{SPEC} lies here, and where it publishes to cannot be asked: {error}", hint=hint) from error
    return SpecRoots(roots=result, versions=versions, unlocked=unlocked)


def _locked(name: str) -> bool:
    """Return True if a shipped recipe has a lock file; recipes that need values of a site come without one."""
    request = recipes.asked(name)
    return request.lock_path(request.chain(by_name=True)).exists()


def _published(tree: str, login: TreeLogin) -> Iterator[image_manifest.Manifest]:
    """Yield the manifest of each version in a published tree, in one image's folder, or where a spec publishes.

    Raises BuildError.
    """
    if not Path(tree).is_dir():
        yield from _where_a_spec_publishes(tree, login)
        return
    folders = [Path(tree, VERSIONS)] if Path(tree, VERSIONS).is_dir() else sorted(Path(tree).glob(f"*/{VERSIONS}"))
    versions = [path for folder in folders for path in sorted(folder.iterdir()) if number_of(path.name) >= 0]
    if not versions:
        raise UsageError(f"--published {tree}: it holds no version of an image; name the folder that nodes boot from")
    for path in versions:
        try:
            yield image_manifest.decode((path / image_manifest.MANIFEST).read_bytes())
        except (OSError, image_manifest.ManifestError) as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", "") or str(error)
            raise BuildError(f"{path / image_manifest.MANIFEST}: {why}", hint=_REPAIR) from error


def _where_a_spec_publishes(spec: str, login: TreeLogin) -> Iterator[image_manifest.Manifest]:
    """Yield the manifest of each version in a spec's published tree, on this machine or by SSH.

    Raises NoTree, BuildError, StepError.
    """
    with published_trees.opened(spec, "", login) as opened_tree:
        for tree in opened_tree.looks():
            for version in tree.versions:
                manifest = image_versions.manifest_of(tree, version)
                if manifest is None:
                    place = f"{opened_tree.transport.where}: {tree.path(VERSIONS, version, image_manifest.MANIFEST)}"
                    raise BuildError(f"{place} is missing, or cannot be read", hint=_REPAIR)
                yield manifest


def _of_runs(home: StateFolder, recent: float) -> Iterator[resolved_recipe.Recipe]:
    """Yield the resolved recipes of runs that began in the last `recent` seconds, because those may go on or be resumed."""
    files = [path for name in home.runs() for path in home.run(name).inputs.glob(f"**/{resolved_recipe.FILE}")]
    for path in files:
        if path.stat().st_mtime < time.time() - recent:
            continue
        try:
            yield resolved_recipe.decode(path.read_bytes())
        except resolved_recipe.RecipeError as error:
            raise BuildError(f"{path}: {error}", hint="nothing was removed; wait until that run is older than --days") from error
