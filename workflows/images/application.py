"""The folders of the source tree that run in pods → a tree, without what editors and interpreters leave behind."""

from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from workflows.images import tree
from workflows.images.errors import BuildError
from workflows.images.recipe import Application
from workflows.images.tree import Tree


def of(wanted: Application, source: Path) -> Tree:
    """The wanted folders of `source` below the application's folder."""
    whole: Tree = {}
    for name in wanted.copy:
        if not (source / name).is_dir():
            raise BuildError(f"{source} has no folder {name}", hint="name a checkout of bringup with --tree")
        for path, entry in tree.of_folder(source / name).items():
            parts = PurePosixPath(path).parts
            if not any(fnmatchcase(part, pattern) for part in parts for pattern in wanted.leave_out):
                whole[f"{wanted.folder}/{name}/{path}"] = entry
    return whole
