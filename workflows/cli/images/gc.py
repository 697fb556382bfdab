"""What a collection of image garbage keeps, from recipes, published trees and runs; and how its result is shown."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from msgspec import Struct

from steps.clients.image import collecting
from steps.clients.image.collecting import Collected, Garbage, Roots
from steps.clients.published import reading
from steps.contract.image import manifest, recipe
from steps.contract.image.published import VERSIONS, number_of
from steps.errors import StepError
from workflows.cli import output
from workflows.cli.images import recipes, trees
from workflows.cli.images.trees import Login
from workflows.cli.specs import kinds
from workflows.engines.folders import Home
from workflows.engines.inputs import SecretMissing
from workflows.images.errors import BuildError
from workflows.images.nodes import resolve, shipped

SPEC = Path("image.yaml")
IMAGES = "images"
"""Folder of the store with everything that builds make and find again."""
_WORDS = {"layers": "layer", "assembled": "image", "oci": "OCI blob", "initrds": "initial RAM disk", "archive": "package"}
_MIB = 1 << 20
_REPAIR = "nothing was removed; repair or remove that version"
_PACKAGES_STAY = "packages stay; --packages removes them too, all but those of each RECIPE or SPEC that is named with it"


class Here(Struct, frozen=True, kw_only=True):
    """What the image spec of this folder keeps: what it is made of now, and the versions of its published tree. `unlocked` is the
    lock that it lacks: it is made of nothing then."""

    roots: Roots
    versions: int
    unlocked: str = ""


def here(login: Login = trees.NOBODY) -> Here | None:
    """The spec that every other command would take without a word; None where none lies here. Raises SpecErrors, and BuildError
    where its lock or its tree cannot be read: nothing is removed then."""
    if not SPEC.is_file() or kinds.kind_of(SPEC) != kinds.IMAGE_SPEC:
        return None
    asked = recipes.asked(str(SPEC))
    unlocked = _lacks(asked.lock_path(asked.chain()))
    found = Roots() if unlocked else collecting.of_recipe(resolve.resolve(asked).recipe)
    versions = 0
    try:
        for image in _where_a_spec_publishes(str(SPEC), login):
            found |= collecting.of_manifest(image)
            versions += 1
    except trees.NoTree:  # nothing is published yet
        pass
    except (StepError, SecretMissing) as error:
        named = f"RECIPE (not {SPEC}, which has no lock)" if unlocked else str(SPEC)
        hint = f"nothing was removed; what stays can be named: bringup image gc {named}, which asks no tree"
        hint = f"{error.hint}; {hint}" if isinstance(error, SecretMissing) and error.hint else hint
        raise BuildError(f"{SPEC} lies here, and where it publishes to cannot be asked: {error}", hint=hint) from error
    return Here(roots=found, versions=versions, unlocked=unlocked)


def _lacks(lock: Path) -> str:
    """The name of a lock that was never made; empty for one that is there, or may be on a disk that is not."""
    return lock.name if lock.parent.is_dir() and not os.path.lexists(lock) else ""


def roots(
    home: Home, named: Sequence[str], published: Iterable[str], pins: Iterable[str], recent: float, login: Login = trees.NOBODY
) -> Roots:
    """Everything that must stay. Raises SpecErrors, BuildError, BadParameter: where one root cannot be read nothing is removed."""
    found = collecting.of_pins(pins)
    for name in named or [name for name in shipped.names() if _locked(name)]:
        found |= collecting.of_recipe(resolve.resolve(recipes.asked(name)).recipe)
    for image in (image for tree in published for image in _published(tree, login)):
        found |= collecting.of_manifest(image)
    for one in _of_runs(home, recent):
        found |= collecting.of_recipe(one)
    return found


def _locked(name: str) -> bool:
    """Whether a shipped recipe can be built as it is; one that needs a site's values has no lock of its own."""
    asked = recipes.asked(name)
    return asked.lock_path(asked.chain(by_name=True)).exists()


def _published(tree: str, login: Login) -> Iterator[manifest.Manifest]:
    """Of a tree, of one image's folder in it, or of the tree that an image spec publishes to, as other commands take them: every
    version must say what it is made of."""
    if not Path(tree).is_dir():
        yield from _where_a_spec_publishes(tree, login)
        return
    folders = [Path(tree, VERSIONS)] if Path(tree, VERSIONS).is_dir() else sorted(Path(tree).glob(f"*/{VERSIONS}"))
    versions = [path for folder in folders for path in sorted(folder.iterdir()) if number_of(path.name) >= 0]
    if not versions:
        raise typer.BadParameter(f"--published {tree}: it holds no version of an image; name the folder that nodes boot from")
    for path in versions:
        try:
            yield manifest.decode((path / manifest.MANIFEST).read_bytes())
        except (OSError, manifest.ManifestError) as error:
            why = "is missing" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", "") or str(error)
            raise BuildError(f"{path / manifest.MANIFEST}: {why}", hint=_REPAIR) from error


def _where_a_spec_publishes(spec: str, login: Login) -> Iterator[manifest.Manifest]:
    """Of every image there, on this machine or by SSH. Raises NoTree, and a StepError where it cannot be asked."""
    with trees.opened(spec, login=login) as found:
        for tree in found.looks():
            for version in tree.versions:
                one = reading.manifest_of(tree, version)
                if one is None:
                    where = f"{found.transport.where}: {tree.path(VERSIONS, version, manifest.MANIFEST)}"
                    raise BuildError(f"{where} is missing, or cannot be read", hint=_REPAIR)
                yield one


def _of_runs(home: Home, recent: float) -> Iterator[recipe.Recipe]:
    """Recipes of runs that began lately: they may go on, or be resumed."""
    for name in home.runs():
        inputs = home.run(name).inputs
        for path in inputs.glob(f"**/{recipe.FILE}"):
            if path.stat().st_mtime < time.time() - recent:
                continue
            try:
                yield recipe.decode(path.read_bytes())
            except recipe.RecipeError as error:
                raise BuildError(
                    f"{path}: {error}", hint="nothing was removed; wait until that run is older than --days"
                ) from error


def show(found: Collected, own: Here | None, *, dry_run: bool, packages: bool) -> None:
    """What went, for a person."""
    gone = "would go" if dry_run else "removed"
    rows = [(*_row(one), gone) for one in found.removed] + [(*_row(one), "in use, stays") for one in found.in_use]
    if rows:
        output.table(("what", "name", "MiB", "result"), rows)
    size = sum(one.size for one in found.removed) / _MIB
    said = f"{output.count(len(found.removed), 'thing')} of {size:.1f} MiB {gone}, {found.kept} kept"
    output.lines([f"{said}, {len(found.in_use)} in use" if found.in_use else said])
    if not packages:
        output.lines([_PACKAGES_STAY])
    if own is not None:
        output.lines([f"{_kept_here(own)}; name a RECIPE or SPEC to keep that alone"])


def _kept_here(own: Here) -> str:
    published = f"the {output.count(own.versions, 'version')} that it has published" if own.versions else ""
    if own.unlocked:
        why = f"its lock {own.unlocked} is not there, so it is made of nothing yet"
        return f"kept for {SPEC}, which lies here: {published or 'nothing'}, as {why}"
    return f"kept for {SPEC}, which lies here: what it is made of{f' and {published}' if published else ''}"


def _row(one: Garbage) -> tuple[str, str, str]:
    return _WORDS.get(one.kind, one.kind), one.name[:24], f"{one.size / _MIB:.1f}"


def data(found: Collected) -> dict[str, Any]:
    """The same for a script."""

    def rows(some: Iterable[Garbage]) -> list[dict[str, Any]]:
        return [{"kind": one.kind, "name": one.name, "bytes": one.size} for one in some]

    return {"removed": rows(found.removed), "in_use": rows(found.in_use), "kept": found.kept}
