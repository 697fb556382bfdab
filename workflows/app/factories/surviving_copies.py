"""Copies of what must survive a factory: each is there, holds data, is complete as far as it tells, and is new enough.

A copy of published stacks or images is a release tree, whose current version names all its files. Any other folder tells nothing of
itself: a log that a failing job writes makes no backup. So the job names a file that it writes last.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from steps.clients.releases import verification
from steps.clients.releases.local_transport import LocalTransport
from steps.clients.releases.release_tree import ReleaseTree
from steps.contract import release_layout
from steps.errors import StepError
from steps.nodeimage.publishing.image_kind import image_kind
from steps.softwarestack.publication import stack_kind
from steps.softwarestack.publication.package_checks import PackageChecks
from workflows.app import release_trees
from workflows.spec.pipelines.factory_spec import SurvivingCopy

MOST_FILES = 200_000
"""Most files of a copy that are looked at, so that a check of a large folder ends."""
_ANY = ".any"
"""Name of no product, with which a root is looked at to see which products it has."""
_SILENT = "does not say if it is complete"
_BY_POINTER = "by its pointer"
UNMARKED = "let the job that copies write a file at its end, and name it in rebuild.copies[].marker"
"""Advice about a copy that does not say if it is complete."""
RENEWED = "if a job renews it, " + UNMARKED + ", because a copied pointer keeps the time of its publication; else "
"""Advice about a copy whose age is that of a pointer; what follows is how to renew it."""
_KINDS = (stack_kind.stack_kind(), image_kind())


def problems(copy: SurvivingCopy, clock_seconds: float) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a copy, each with what to do; `clock_seconds` is the time now in UTC seconds."""
    name, renew = f"the copy of {copy.what} at {copy.path}", f"renew the copy of {copy.what} at {copy.path}"
    try:
        problem = _problem(copy, Path(copy.path), name, clock_seconds)
    except OSError as error:
        problem = f"{name} cannot be read: {error.strerror or error}"
    if problem:
        yield problem, UNMARKED if problem.endswith(_SILENT) else f"{RENEWED if _BY_POINTER in problem else ''}{renew}"


def _problem(copy: SurvivingCopy, path: Path, name: str, clock_seconds: float) -> str:
    """Return what is wrong with a copy; empty if nothing is. Raises OSError."""
    if not path.exists():
        return f"there is no copy of {copy.what} at {copy.path}"
    try:
        trees = _trees(path) if path.is_dir() else []
        broken = next((why for root, tree in trees for why in _incomplete(root, tree)), "")
    except StepError as error:
        trees, broken = [], str(error)
    if broken:
        return f"{name} is not complete: {broken}"
    if not _has_data(path, copy.marker or ""):
        return f"{name} is empty"
    written = _written(copy, path, [tree for _, tree in trees])
    if written is None:
        return f"{name} has no file {copy.marker}, which is written once it is complete" if copy.marker else f"{name} {_SILENT}"
    seconds, part = written
    age, most = clock_seconds - seconds, copy.within.total_seconds()
    return f"{name} is {age / 3600:.1f} h old{part}, and may be {most / 3600:.1f} h" if age > most else ""


def _written(copy: SurvivingCopy, path: Path, trees: list[ReleaseTree]) -> tuple[float, str] | None:
    """Return when a copy was completed: the time of its marker, of the only file, or of the release tree that was switched first.

    The second part tells which tree that is, for a sentence about its age; empty for the others.
    """
    if copy.marker:
        marker = path / copy.marker
        return (marker.lstat().st_mtime, "") if marker.is_file() else None
    if path.is_file():
        return path.stat().st_mtime, ""
    places = [(tree, tree.path(tree.layout.pointer)) for tree in trees]
    # one product that is renewed must not hide another that nobody copies any more
    switches = [(float(tree.entries[place].modified), f" {_BY_POINTER} {place}") for tree, place in places if place in tree.entries]
    return min(switches, default=None)


def _has_data(path: Path, marker: str) -> bool:
    """Return True if a file has any bytes, or a folder a file with some besides its marker."""
    if path.is_file():
        return path.stat().st_size > 0
    looked = 0
    for folder, _, names in os.walk(path):
        for name in names:
            full = Path(folder, name)
            if full != path / marker and not full.is_symlink() and full.is_file() and full.stat().st_size > 0:
                return True
            if (looked := looked + 1) > MOST_FILES:
                return False
    return False


def _trees(path: Path) -> list[tuple[Path, ReleaseTree]]:
    """Return the release trees of a folder with their root: the folder is one, or holds some. Raises StepError."""
    root, product = release_trees.root_and_product(path, "")
    transport = LocalTransport(root)
    looked = [transport.look(name) for name in ((product,) if product else transport.look(_ANY).products)]
    return [(root, tree) for tree in looked if tree.versions]


def _incomplete(root: Path, tree: ReleaseTree) -> Iterator[str]:
    """Yield why the current version of a tree cannot be restored from it, by manifests, names and sizes; no large file is read."""
    version = tree.current
    yield from (f"{problem.place} {problem.why}" for problem in verification.pointer_problems(tree))
    if version not in tree.versions:
        return
    kind = next((kind for kind in _KINDS if kind.contents_of(tree, version) is not None), None)
    if kind is None:
        yield f"{tree.product} {version} has no manifest of a stack or an image"
        return
    if release_layout.version_name(release_layout.number_of(version), tree.manifest_digest(version)) != version:
        yield f"the manifest of {tree.product} {version} is not the one that its name tells"
    if not verification.has_all_files(kind, tree, version):
        yield f"{tree.product} {version} lacks files of its manifest, or has them with other sizes"
    manifest = stack_kind.manifest_of(tree, version)
    check = PackageChecks(root).problems
    yield from (f"{item.place} {item.why}" for package in (manifest.packages if manifest else ()) for item in check(package))
