"""The Git commits of the files that decide a product, in one line for its manifest."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from workflows.app.specs import revisions

CHANGED: Final = " with changes"
OUTSIDE: Final = "not in Git"


def commits_of(files: Iterable[Path]) -> str:
    """Return the commits of all work trees with these files, plus ` with changes` if a file differs; `not in Git` without any."""
    trees, outside = _trees(files)
    states = [revisions.state(top, paths) for top, paths in trees.items()]
    known = [state for state in states if state is not None]
    if not known:
        return OUTSIDE
    changed = outside or len(known) < len(states) or any(dirty for _, dirty in known)
    return ", ".join(commit for commit, _ in known) + (CHANGED if changed else "")


def _trees(files: Iterable[Path]) -> tuple[dict[Path, list[Path]], bool]:
    """Return files by work tree, and True if some lie in none. A link counts as two files: itself and its target."""
    trees: dict[Path, list[Path]] = {}
    outside, tops = False, dict[Path, Path | None]()
    links_and_files = ((file.parent.resolve() / file.name, Path(os.path.realpath(file))) for file in files)
    for path in dict.fromkeys(path for pair in links_and_files for path in pair):
        if path.parent not in tops:
            tops[path.parent] = revisions.top(path.parent)
        tree = tops[path.parent]
        if tree is None:
            outside = True
        else:
            trees.setdefault(tree, []).append(path)
    return trees, outside
