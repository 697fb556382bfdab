"""The roots of a garbage collection of images (recipes, published trees, runs), and the output of its result."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct

from steps.contract.release_layout import VERSIONS, number_of
from steps.errors import StepError
from steps.nodeimage import garbage_collection
from steps.nodeimage.contract import image_manifest, resolved_recipe
from steps.nodeimage.garbage_collection import Collected, Garbage, Roots
from steps.nodeimage.publishing import image_versions
from workflows.cli import output
from workflows.cli.images import recipes, trees
from workflows.cli.images.trees import Login
from workflows.cli.specs import kinds
from workflows.engines.folders import StateFolder
from workflows.engines.run_inputs import SecretMissing
from workflows.nodeimage import recipe_files, recipe_resolution
from workflows.podimage.errors import BuildError

SPEC = Path("image.yaml")
IMAGES = "images"
"""Folder of the store with all files that builds make and find again."""
_WORDS = {"layers": "layer", "assembled": "image", "oci": "OCI blob", "initrds": "initial RAM disk", "archive": "package"}
_MIB = 1 << 20
_REPAIR = "nothing was removed; repair or remove that version"
_PACKAGES_STAY = "packages stay; --packages removes them too, all but those of each RECIPE or SPEC that is named with it"


class Here(Struct, frozen=True, kw_only=True):
    """The images that the image spec of this folder keeps: its present build, and the versions of its published tree.

    `unlocked` names a missing lock; the spec then has no present build.
    """

    roots: Roots
    versions: int
    unlocked: str = ""


def here(login: Login = trees.NOBODY) -> Here | None:
    """Return what `./image.yaml` keeps, which is the default spec of other commands; None if there is none here.

    Raises SpecErrors, and BuildError if its lock or tree cannot be read: nothing is removed then.
    """
    if not SPEC.is_file() or kinds.kind_of(SPEC) != kinds.IMAGE_SPEC:
        return None
    asked = recipes.asked(str(SPEC))
    unlocked = _lacks(asked.lock_path(asked.chain()))
    result = Roots() if unlocked else garbage_collection.of_recipe(recipe_resolution.resolve(asked).recipe)
    versions = 0
    try:
        for image in _where_a_spec_publishes(str(SPEC), login):
            result |= garbage_collection.of_manifest(image)
            versions += 1
    except trees.NoTree:  # nothing is published yet
        pass
    except (StepError, SecretMissing) as error:
        example = f"RECIPE (not {SPEC}, which has no lock)" if unlocked else str(SPEC)
        hint = f"nothing was removed; what stays can be named: bringup image gc {example}, which asks no tree"
        hint = f"{error.hint}; {hint}" if isinstance(error, SecretMissing) and error.hint else hint
        raise BuildError(f"{SPEC} lies here, and where it publishes to cannot be asked: {error}", hint=hint) from error
    return Here(roots=result, versions=versions, unlocked=unlocked)


def _lacks(lock: Path) -> str:
    """Return the name of a lock that was never made; empty if it exists, or if its folder (perhaps an unmounted disk) does not."""
    return lock.name if lock.parent.is_dir() and not os.path.lexists(lock) else ""


def roots(
    home: StateFolder,
    named: Sequence[str],
    published: Iterable[str],
    pins: Iterable[str],
    recent: float,
    login: Login = trees.NOBODY,
) -> Roots:
    """Return everything that must stay. Raises SpecErrors, BuildError, BadParameter: if one root cannot be read, nothing is
    removed.
    """
    result = garbage_collection.of_pins(pins)
    for name in named or [name for name in recipe_files.shipped_names() if _locked(name)]:
        result |= garbage_collection.of_recipe(recipe_resolution.resolve(recipes.asked(name)).recipe)
    for image in (image for tree in published for image in _published(tree, login)):
        result |= garbage_collection.of_manifest(image)
    for recipe in _of_runs(home, recent):
        result |= garbage_collection.of_recipe(recipe)
    return result


def _locked(name: str) -> bool:
    """Return True if a shipped recipe has a lock; a recipe that needs a site's values has none."""
    asked = recipes.asked(name)
    return asked.lock_path(asked.chain(by_name=True)).exists()


def _published(tree: str, login: Login) -> Iterator[image_manifest.Manifest]:
    """Yield the manifests of a tree, of one image's folder in it, or of the tree that an image spec publishes to.

    Raises BuildError for a version without a readable manifest.
    """
    if not Path(tree).is_dir():
        yield from _where_a_spec_publishes(tree, login)
        return
    folders = [Path(tree, VERSIONS)] if Path(tree, VERSIONS).is_dir() else sorted(Path(tree).glob(f"*/{VERSIONS}"))
    versions = [path for folder in folders for path in sorted(folder.iterdir()) if number_of(path.name) >= 0]
    if not versions:
        raise typer.BadParameter(f"--published {tree}: it holds no version of an image; name the folder that nodes boot from")
    for path in versions:
        try:
            yield image_manifest.decode((path / image_manifest.MANIFEST).read_bytes())
        except (OSError, image_manifest.ManifestError) as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", "") or str(error)
            raise BuildError(f"{path / image_manifest.MANIFEST}: {why}", hint=_REPAIR) from error


def _where_a_spec_publishes(spec: str, login: Login) -> Iterator[image_manifest.Manifest]:
    """Yield the manifests of the tree that a spec publishes to, here or by SSH. Raises NoTree, BuildError, StepError."""
    with trees.opened(spec, login=login) as opened_tree:
        for tree in opened_tree.looks():
            for version in tree.versions:
                manifest = image_versions.manifest_of(tree, version)
                if manifest is None:
                    place = f"{opened_tree.transport.where}: {tree.path(VERSIONS, version, image_manifest.MANIFEST)}"
                    raise BuildError(f"{place} is missing, or cannot be read", hint=_REPAIR)
                yield manifest


def _of_runs(home: StateFolder, recent: float) -> Iterator[resolved_recipe.Recipe]:
    """Yield recipes of runs that began lately: they may go on, or be resumed."""
    for name in home.runs():
        inputs = home.run(name).inputs
        for path in inputs.glob(f"**/{resolved_recipe.FILE}"):
            if path.stat().st_mtime < time.time() - recent:
                continue
            try:
                yield resolved_recipe.decode(path.read_bytes())
            except resolved_recipe.RecipeError as error:
                raise BuildError(
                    f"{path}: {error}", hint="nothing was removed; wait until that run is older than --days"
                ) from error


def show(collected: Collected, own_spec: Here | None, *, dry_run: bool, packages: bool) -> None:
    """Print the result for a person."""
    verb = "would go" if dry_run else "removed"
    rows = [(*_row(item), verb) for item in collected.removed] + [(*_row(item), "in use, stays") for item in collected.in_use]
    if rows:
        output.table(("what", "name", "MiB", "result"), rows)
    size = sum(item.size for item in collected.removed) / _MIB
    summary = f"{output.count(len(collected.removed), 'thing')} of {size:.1f} MiB {verb}, {collected.kept} kept"
    output.lines([f"{summary}, {len(collected.in_use)} in use" if collected.in_use else summary])
    if not packages:
        output.lines([_PACKAGES_STAY])
    if own_spec is not None:
        output.lines([f"{_kept_here(own_spec)}; name a RECIPE or SPEC to keep that alone"])


def _kept_here(own_spec: Here) -> str:
    published = f"the {output.count(own_spec.versions, 'version')} that it has published" if own_spec.versions else ""
    if own_spec.unlocked:
        why = f"its lock {own_spec.unlocked} is not there, so it is made of nothing yet"
        return f"kept for {SPEC}, which lies here: {published or 'nothing'}, as {why}"
    return f"kept for {SPEC}, which lies here: what it is made of{f' and {published}' if published else ''}"


def _row(item: Garbage) -> tuple[str, str, str]:
    return _WORDS.get(item.kind, item.kind), item.name[:24], f"{item.size / _MIB:.1f}"


def data(collected: Collected) -> dict[str, Any]:
    """Return the result for scripts."""

    def rows(some: Iterable[Garbage]) -> list[dict[str, Any]]:
        return [{"kind": one.kind, "name": one.name, "bytes": one.size} for one in some]

    return {"removed": rows(collected.removed), "in_use": rows(collected.in_use), "kept": collected.kept}
