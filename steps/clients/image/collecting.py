"""Collects garbage of the image store: what no given recipe or published image reaches, was not used lately, and is not in use.

What is reached is decided by keys alone (`Roots`, pure); what is in use, by the locks that builds hold: a shared one on each layer
that they mount, one on the archive while packages are installed, and the key's own while something is made, booted or published.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from steps.clients.image import entries, removing
from steps.clients.image.files import tools
from steps.contract.image import debian, keys
from steps.contract.image.manifest import Manifest
from steps.contract.image.recipe import Recipe

LAYERS, IMAGES, BLOBS, INITRDS, ARCHIVE = "layers", "assembled", "oci", "initrds", "archive"


class Roots(Struct, frozen=True, kw_only=True):
    """What must stay: keys of layers and images, digests of packages (all as hex digits)."""

    layers: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()

    def __or__(self, other: "Roots") -> "Roots":
        return Roots(layers=self.layers | other.layers, images=self.images | other.images, packages=self.packages | other.packages)


class Garbage(Struct, frozen=True, kw_only=True):
    """Something that was removed, or would be: `kind` is the folder of the store, `name` a key or digest; bytes on the disk."""

    kind: str
    name: str
    size: int


class Collected(Struct, frozen=True, kw_only=True):
    """What a collection came to: what went, what would have gone but is in use, and how many entries stayed."""

    removed: tuple[Garbage, ...]
    in_use: tuple[Garbage, ...]
    kept: int


def of_recipe(recipe: Recipe) -> Roots:
    """What a recipe needs to be built again without building anything."""
    return Roots(
        layers=frozenset(keys.layers(recipe).values()),
        images=frozenset({keys.image(recipe)}),
        packages=frozenset(package.sha256 for layer in recipe.layers for package in layer.packages),
    )


def of_manifest(manifest: Manifest) -> Roots:
    """The same for an image that was published: so that it can be changed, and built once more from what it was made of."""
    return Roots(
        layers=frozenset(layer.key for layer in manifest.layers),
        images=frozenset({manifest.key}),
        packages=frozenset(package.sha256 for package in manifest.packages),
    )


def of_pins(pins: Iterable[str]) -> Roots:
    """Keys or digests that somebody wants to keep, of whatever kind."""
    found = frozenset(pins)
    return Roots(layers=found, images=found, packages=found)


def collect(images: Path, roots: Roots, *, recent: float, dry_run: bool, packages: bool = False) -> Collected:
    """Remove what is not reached and was not used in the last `recent` seconds; with `dry_run` only tell it.

    Packages go only with `packages`: all else can be built again, and no mirror has every version for ever.
    """
    before = time.time() - recent
    removed: list[Garbage] = []
    in_use: list[Garbage] = []
    kept = 0
    for kind, path in _entries(images):
        if (kind == ARCHIVE and not packages) or _reached(kind, path, roots) or _used(path) >= before:
            kept += 1
            continue
        found = Garbage(kind=kind, name=path.name.removesuffix(debian.SUFFIX), size=_size(path))
        with _alone(images, kind, path, create=not dry_run) as free:
            if _used(path) >= before:  # between the first look and the lock
                kept += 1
                continue
            (removed if free else in_use).append(found)
            if free and not dry_run:
                _take(path)
    for path in _half_made(images):
        with _locked(path.with_name(f".{path.name.split('.')[1]}.lock"), create=not dry_run) as free:
            if free and os.path.lexists(path):  # whoever made it may have come to its end meanwhile
                removed.append(Garbage(kind="half made", name=path.name, size=_size(path)))
                if not dry_run:
                    removing.remove(path)
    return Collected(removed=tuple(removed), in_use=tuple(in_use), kept=kept)


def _entries(images: Path) -> Iterator[tuple[str, Path]]:
    for kind, pattern in ((LAYERS, "*"), (IMAGES, "*"), (BLOBS, "*"), (INITRDS, "*/*"), (ARCHIVE, f"*/*{debian.SUFFIX}")):
        for path in sorted((images / kind).glob(pattern)):
            if not path.name.startswith("."):
                yield kind, path


def _reached(kind: str, path: Path, roots: Roots) -> bool:
    """An initial RAM disk is a copy that saves seconds: only use keeps it."""
    known = {LAYERS: roots.layers, BLOBS: roots.layers, IMAGES: roots.images, ARCHIVE: roots.packages, INITRDS: frozenset[str]()}
    return tools.key_of(path.name.removesuffix(debian.SUFFIX)) in known[kind]


def _used(path: Path) -> float:
    """When an entry was made or noted as used: by its newest file, or its own time. Now, where somebody else takes it away now."""
    names = [path, *(path.glob("*.json") if path.is_dir() else ())]
    try:
        return float(max(name.stat().st_mtime for name in names))
    except FileNotFoundError:
        return time.time()


def _size(path: Path) -> int:
    """Bytes on the disk, as far as this user may look; what goes meanwhile has none."""
    seen: dict[tuple[int, int], int] = {}
    with contextlib.suppress(FileNotFoundError):
        if not path.is_dir():
            return path.stat().st_size
        for folder, _, names in os.walk(path):
            for name in names:
                status = Path(folder, name).lstat()
                seen[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(seen.values())


def _half_made(images: Path) -> Iterator[Path]:
    for pattern in (*(f"{kind}/.*.part*" for kind in (LAYERS, IMAGES, BLOBS)), f"{INITRDS}/*/.*.part*"):
        yield from sorted(images.glob(pattern))


@contextlib.contextmanager
def _alone(images: Path, kind: str, path: Path, *, create: bool) -> Iterator[bool]:
    """Whether nobody uses an entry, nor can while this block lasts."""
    with contextlib.ExitStack() as locks:
        wanted: list[Callable[[], contextlib.AbstractContextManager[bool]]] = []
        if kind == LAYERS:
            wanted.append(lambda: _locked(path / "tree"))
        if kind == ARCHIVE:
            wanted.append(lambda: _locked(images / ARCHIVE))
        else:
            wanted.append(lambda: _locked(entries.lock_of(path), create=create))
        yield all(locks.enter_context(lock()) for lock in wanted)


@contextlib.contextmanager
def _locked(path: Path, *, create: bool = False) -> Iterator[bool]:
    """An exclusive lock, if it can be had at once."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, 0o644)
    except FileNotFoundError:
        yield True
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        free = True
    except BlockingIOError:
        free = False
    try:
        yield free
    finally:
        os.close(handle)


def _take(path: Path) -> None:
    if path.is_dir():
        entries.take_away(path, removing.remove)
    else:
        path.unlink(missing_ok=True)
