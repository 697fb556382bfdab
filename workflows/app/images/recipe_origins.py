"""The origin of an image in one line: the Git commits of all files that decide its content, and bringup's version."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from steps import __version__
from steps.contract.runs.revision import SpecSource
from workflows.app.specs import file_origins, revisions
from workflows.app.specs.file_origins import CHANGED, OUTSIDE
from workflows.nodeimage import recipe_files
from workflows.nodeimage.recipe_chain import Chain
from workflows.nodeimage.recipe_resolution import RecipeRequest


def of(spec: Path, request: RecipeRequest, source: SpecSource | None = None) -> str:
    """Return the origin of an image, such as `3f2a… with changes, on bringup 0.1.0`.

    The commits are those of spec, recipes, the files that they place, and lock. A shipped recipe counts as part of bringup:
    `bringup 0.1.0, spec 3f2a…`. The version is always included, because every image contains boot files of bringup. `source` is the
    commit from which the spec's folder was read, if that folder is no work tree.
    """
    chain = request.chain()
    files = dict.fromkeys([spec, *_files(chain), request.lock_path(chain)])
    shipped_files = [path for path in files if path.is_relative_to(recipe_files.IMAGES)]
    commits = source.commit if source else file_origins.commits_of(path for path in files if path not in shipped_files)
    boot_files = (path for path in recipe_files.BOOT.iterdir() if path.is_file())
    version = f"bringup {__version__}{_changed_here([*shipped_files, *boot_files])}"
    if not chain.top.is_shipped:
        return f"{commits}, on {version}"
    return version if commits == OUTSIDE else f"{version}, spec {commits}"


def _files(chain: Chain) -> Iterator[Path]:
    for part in chain.parts:
        yield part.path
        files = (file for layer in part.spec.layers for file in layer.files)
        yield from (part.path.parent / file.source for file in files if file.source is not None)


def _changed_here(files: Iterable[Path]) -> str:
    """Return ` with changes` if files of bringup differ from the commit of its checkout; empty otherwise, or without a checkout."""
    if revisions.top(recipe_files.IMAGES) != recipe_files.IMAGES.parent.resolve():
        return ""
    tree_state = revisions.state(recipe_files.IMAGES.parent.resolve(), [*files])
    return CHANGED if tree_state is None or tree_state[1] else ""
