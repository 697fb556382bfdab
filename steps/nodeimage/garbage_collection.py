"""Garbage collection of the image store: removes entries that no recipe or published image needs and nobody used lately.

Keys alone decide whether an entry is needed (`Roots`, pure). Locks of builds decide use: a shared lock on each mounted layer, one
on the package archive while packages are installed, and the lock of a key while its entry is made, booted or published.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from steps.nodeimage.containment import namespace
from steps.nodeimage.contract import build_keys, debian
from steps.nodeimage.contract.image_manifest import Manifest
from steps.nodeimage.contract.resolved_recipe import Recipe
from steps.nodeimage.store import programs, store_entries

LAYERS, IMAGES, BLOBS, INITRDS, ARCHIVE = "layers", "assembled", "oci", "initrds", "archive"


class Roots(Struct, frozen=True, kw_only=True):
    """Names of store entries that must stay: keys of layers and images, digests of packages, all as hex digits."""

    layers: frozenset[str] = frozenset()
    images: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()

    def __or__(self, other: "Roots") -> "Roots":
        return Roots(layers=self.layers | other.layers, images=self.images | other.images, packages=self.packages | other.packages)


class Garbage(Struct, frozen=True, kw_only=True):
    """Store entry that was removed, or would be: `kind` is its folder in the store, `name` a key or digest, `size` in bytes."""

    kind: str
    name: str
    size: int


class Collected(Struct, frozen=True, kw_only=True):
    """Result of a collection: removed entries, entries that nobody needs but are in use, and the number of entries that stayed."""

    removed: tuple[Garbage, ...]
    in_use: tuple[Garbage, ...]
    kept: int


def of_recipe(recipe: Recipe) -> Roots:
    """Return the store entries with which a recipe's image is built again from the cache alone."""
    return Roots(
        layers=frozenset(build_keys.layers(recipe).values()),
        images=frozenset({build_keys.image(recipe)}),
        packages=frozenset(package.sha256 for layer in recipe.layers for package in layer.packages),
    )


def of_manifest(manifest: Manifest) -> Roots:
    """Return the store entries with which a published image can be changed or built again."""
    return Roots(
        layers=frozenset(layer.key for layer in manifest.layers),
        images=frozenset({manifest.key}),
        packages=frozenset(package.sha256 for package in manifest.packages),
    )


def of_pins(pins: Iterable[str]) -> Roots:
    """Return the pins of a user (keys or digests to keep) as entries of every kind."""
    names = frozenset(pins)
    return Roots(layers=names, images=names, packages=names)


def collect(images: Path, roots: Roots, *, recent: float, dry_run: bool, packages: bool = False) -> Collected:
    """Remove store entries that `roots` does not name and nobody used in the last `recent` seconds; return what was removed.

    `dry_run` removes nothing. Packages go only with `packages`: everything else can be built again, but mirrors drop old versions.
    """
    before = time.time() - recent
    removed: list[Garbage] = []
    in_use: list[Garbage] = []
    kept = 0
    for kind, path in _entries(images):
        if (kind == ARCHIVE and not packages) or _reached(kind, path, roots) or _used(path) >= before:
            kept += 1
            continue
        garbage = Garbage(kind=kind, name=path.name.removesuffix(debian.SUFFIX), size=_size(path))
        with _alone(images, kind, path, create=not dry_run) as free:
            if _used(path) >= before:  # between the first look and the lock
                kept += 1
                continue
            (removed if free else in_use).append(garbage)
            if free and not dry_run and path.is_dir():
                store_entries.remove_entry(path, namespace.remove_folder)
            elif free and not dry_run:
                path.unlink(missing_ok=True)
    half_made = (*(f"{kind}/.*.part*" for kind in (LAYERS, IMAGES, BLOBS)), f"{INITRDS}/*/.*.part*")
    for path in (path for pattern in half_made for path in sorted(images.glob(pattern))):
        with _locked(path.with_name(f".{path.name.split('.')[1]}.lock"), create=not dry_run) as free:
            if free and os.path.lexists(path):  # whoever made it may have come to its end meanwhile
                removed.append(Garbage(kind="half made", name=path.name, size=_size(path)))
                if not dry_run:
                    namespace.remove_folder(path)
    return Collected(removed=tuple(removed), in_use=tuple(in_use), kept=kept)


def _entries(images: Path) -> Iterator[tuple[str, Path]]:
    for kind, pattern in ((LAYERS, "*"), (IMAGES, "*"), (BLOBS, "*"), (INITRDS, "*/*"), (ARCHIVE, f"*/*{debian.SUFFIX}")):
        for path in sorted((images / kind).glob(pattern)):
            if not path.name.startswith("."):
                yield kind, path


def _reached(kind: str, path: Path, roots: Roots) -> bool:
    """Return True if `roots` names the entry.

    Kept initrds are never named: they only save seconds, so recent use alone keeps them.
    """
    known = {LAYERS: roots.layers, BLOBS: roots.layers, IMAGES: roots.images, ARCHIVE: roots.packages, INITRDS: frozenset[str]()}
    return programs.key_of(path.name.removesuffix(debian.SUFFIX)) in known[kind]


def _used(path: Path) -> float:
    """Return when an entry was made or last used (epoch seconds); the present time if another process removes it meanwhile."""
    names = [path, *(path.glob("*.json") if path.is_dir() else ())]
    try:
        return float(max(name.stat().st_mtime for name in names))
    except FileNotFoundError:
        return time.time()


def _size(path: Path) -> int:
    """Return an entry's bytes on disk, as far as this user may read; files that vanish meanwhile count 0."""
    sizes: dict[tuple[int, int], int] = {}
    with contextlib.suppress(FileNotFoundError):
        if not path.is_dir():
            return path.stat().st_size
        for folder, _, names in os.walk(path):
            for name in names:
                status = Path(folder, name).lstat()
                sizes[status.st_dev, status.st_ino] = status.st_blocks * 512
    return sum(sizes.values())


@contextlib.contextmanager
def _alone(images: Path, kind: str, path: Path, *, create: bool) -> Iterator[bool]:
    """Yield True if nobody uses the entry; its locks are then held until the block ends, so that nobody begins to."""
    with contextlib.ExitStack() as locks:
        is_unmounted = kind != LAYERS or locks.enter_context(_locked(path / "tree"))
        lock = _locked(images / ARCHIVE) if kind == ARCHIVE else _locked(store_entries.lock_of(path), create=create)
        yield is_unmounted and locks.enter_context(lock)


@contextlib.contextmanager
def _locked(path: Path, *, create: bool = False) -> Iterator[bool]:
    """Try to take an exclusive lock for the block; yield False if another process holds it, True if not or without the file."""
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
