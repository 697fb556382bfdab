"""Sandbox faults: `faults.yaml` as data, and a fault as a folder that is laid over a good root."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

FILE = Path(__file__).with_name("faults.yaml")


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fault in a root: the changes to files, the test that must catch it, and a pattern of that test's message."""

    name: str
    why: str
    caught_by: str
    says: str
    files: dict[str, str] = {}
    links: dict[str, str] = {}
    modes: dict[str, str] = {}
    removed: tuple[str, ...] = ()
    sizes: dict[str, int] = {}
    replaced: dict[str, tuple[str, str]] = {}


def faults(file: Path = FILE) -> tuple[Fault, ...]:
    """Load all faults of a YAML file."""
    return msgspec.convert(yaml.safe_load(file.read_text()), tuple[Fault, ...])


def disturb(fault: Fault, stack: tuple[Path, ...], upper: Path) -> None:
    """Put the fault into the empty folder `upper`, which is then laid over the stack."""
    for path, text in fault.files.items():
        _place(stack, upper, path).write_text(text)
    for path, target in fault.links.items():
        _place(stack, upper, path).symlink_to(target)
    for path, size in fault.sizes.items():
        with _place(stack, upper, path).open("wb") as file:
            file.truncate(size)
    for pattern, (old, new) in fault.replaced.items():
        for path in _found(stack, pattern):
            place = _copied(stack, upper, path)
            assert old in place.read_text(), f"{fault.name}: {path} has no {old!r}"
            place.write_text(place.read_text().replace(old, new))
    for path, mode in fault.modes.items():
        place = upper / path.lstrip("/")
        (place if place.exists() else _copied(stack, upper, path)).chmod(int(mode, 8))
    gone = [path for path in fault.removed if _lower(stack, path)]
    assert bool(gone) == bool(fault.removed), f"{fault.name}: nothing to remove"
    for path in gone:
        os.mknod(_place(stack, upper, path), stat.S_IFCHR, os.makedev(0, 0))  # as overlayfs marks what a layer hides


def _lower(stack: tuple[Path, ...], path: str) -> Path | None:
    """The uppermost file of a path."""
    return next((folder / path.lstrip("/") for folder in stack if os.path.lexists(folder / path.lstrip("/"))), None)


def _found(stack: tuple[Path, ...], pattern: str) -> Iterator[str]:
    yield from sorted({f"/{path.relative_to(folder)}" for folder in stack for path in folder.glob(pattern.lstrip("/"))})


def _copied(stack: tuple[Path, ...], upper: Path, path: str) -> Path:
    below = _lower(stack, path)
    assert below is not None, f"the root has no {path}"
    place = _place(stack, upper, path)
    if below.is_dir():
        place.mkdir()
    else:
        shutil.copy2(below, place)
    return place


def _place(stack: tuple[Path, ...], upper: Path, path: str) -> Path:
    """Return a path in the upper folder, and make its parent folders with the modes that they have in the layers below."""
    place = upper / path.lstrip("/")
    for folder in reversed(place.relative_to(upper).parents):
        below = _lower(stack, str(folder))
        if not (upper / folder).exists():
            (upper / folder).mkdir(mode=0o755)
            if below is not None and below.is_dir():
                shutil.copymode(below, upper / folder)  # without what overlayfs noted of it: an opaque one would hide the rest
    return place
