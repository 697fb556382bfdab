"""Where a recipe comes from, in one line: the Git commits of all files that decide what it says, and bringup's version."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from steps import __version__
from steps.contract.revision import Source
from workflows.cli.specs import revisions
from workflows.images.nodes import shipped
from workflows.images.nodes.chain import Chain, Part
from workflows.images.nodes.resolve import Asked

CHANGED: Final = " with changes"
OUTSIDE: Final = "not in Git"


def of(spec: Path, asked: Asked, source: Source | None = None) -> str:
    """`3f2a… with changes, on bringup 0.1.0`: what the spec, its recipe, the files that this one places, and its lock were at.

    A shipped recipe is bringup's, whoever's work tree the spec lies in: `bringup 0.1.0, spec 3f2a…`. Every image has bringup's
    files for its boot, so its version is always told. `source` is the commit that the whole folder was read from, where no Git is.
    """
    chain = asked.chain()
    files = dict.fromkeys([spec, *_files(chain), asked.lock_path(chain)])
    brought = [path for path in files if path.is_relative_to(shipped.IMAGES)]
    own = source.commit if source else _said(path for path in files if path not in brought)
    version = f"bringup {__version__}{_changed_here([*brought, *_boot()])}"
    if not chain.top.is_shipped:
        return f"{own}, on {version}"
    return version if own == OUTSIDE else f"{version}, spec {own}"


def _files(chain: Chain) -> Iterator[Path]:
    for part in chain.parts:
        yield part.path
        yield from _sources(part)


def _sources(part: Part) -> Iterator[Path]:
    return (part.path.parent / file.source for layer in part.spec.layers for file in layer.files if file.source is not None)


def _boot() -> Iterator[Path]:
    """What bringup brings for the boot of every image."""
    return (path for path in shipped.BOOT.iterdir() if path.is_file())


def _said(files: Iterable[Path]) -> str:
    """The commits of all work trees that the files lie in, and whether one differs from them."""
    trees, outside = _trees(files)
    states = [revisions.state(top, paths) for top, paths in trees.items()]
    known = [one for one in states if one is not None]
    if not known:
        return OUTSIDE
    changed = outside or len(known) < len(states) or any(dirty for _, dirty in known)
    return ", ".join(commit for commit, _ in known) + (CHANGED if changed else "")


def _trees(files: Iterable[Path]) -> tuple[dict[Path, list[Path]], bool]:
    """Files by the work tree that they lie in, and whether some lie in none; a link counts with what it leads to."""
    trees: dict[Path, list[Path]] = {}
    outside, tops = False, dict[Path, Path | None]()
    for path in dict.fromkeys(one for file in files for one in _link_and_file(file)):
        if path.parent not in tops:
            tops[path.parent] = revisions.top(path.parent)
        found = tops[path.parent]
        if found is None:
            outside = True
        else:
            trees.setdefault(found, []).append(path)
    return trees, outside


def _link_and_file(path: Path) -> tuple[Path, Path]:
    return path.parent.resolve() / path.name, Path(os.path.realpath(path))


def _changed_here(files: Iterable[Path]) -> str:
    """Whether bringup's own files differ, where it runs from a checkout; an installed one lies in nobody's work tree."""
    if revisions.top(shipped.IMAGES) != shipped.IMAGES.parent.resolve():
        return ""
    found = revisions.state(shipped.IMAGES.parent.resolve(), [*files])
    return CHANGED if found is None or found[1] else ""
