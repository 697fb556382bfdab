"""The Git folder that Argo CD delivers a spec's charts from: write its files into a checkout, or compare them with those there."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from steps.contract.plain_text import count
from workflows import catalog
from workflows.app.specs import sources
from workflows.gitops import drift
from workflows.gitops.layout import Layout
from workflows.gitops.repository_tree import render_tree
from workflows.spec import ClusterSpec


class NothingToDeliver(ValueError):
    """Error for a spec whose charts Argo CD does not deliver."""

    hint = "write delivery: {mode: argo_cd, argo_cd: {repo: URL, revision: TAG, project: NAME}}"


class NoFolder(ValueError):
    """Error for a path that is no folder, or for a link or folder in place of a file that bringup writes."""

    hint = "give the root of a checkout of the repository that delivery.argo_cd.repo names"


def write(source: str, folder: Path) -> Iterator[str]:
    """Write the rendered files into a checkout and yield lines about it.

    An overlay is kept; files no longer rendered are removed.
    """
    spec, layout, tree = _made(source)
    if folder.exists() and not folder.is_dir():
        raise NoFolder(f"{folder} is no folder")
    present = _read(folder, layout)
    has_overlay = layout.has_overlay(present)
    files = {path: text for path, text in tree.items() if not (has_overlay and path.startswith(f"{layout.overlay}/"))}
    changed = [path for path, text in files.items() if present.get(path) != text]
    extra = [difference.path for difference in drift.differences(layout, tree, present) if difference.what == "extra"]
    # refuse before the first write, so that no tree is left half written
    for path in changed:
        _refuse_others(folder, path)
    for path in changed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(files[path], encoding="utf-8")
    for path in extra:
        (folder / path).unlink()
        _drop_empty(folder / path, folder / layout.home)
    yield from (f"removed {path}: {spec.name} no longer renders it" for path in extra)
    overlay_note = f"; {layout.overlay} is left as it is" if has_overlay else ""
    yield f"wrote {count(len(changed), 'file')} of {len(tree)} to {folder / layout.path}{overlay_note}"
    yield from _notes(layout, {**present, **tree})


def compare(source: str, folder: Path) -> tuple[list[str], int]:
    """Compare a checkout with the rendered files: return lines about all files that differ, and the number of these files."""
    _, layout, tree = _made(source)
    if not folder.is_dir():
        raise NoFolder(f"{folder} is no folder")
    present = _read(folder, layout)
    differing = drift.differences(layout, tree, present)
    shared_notes = [f"note: {sentence}" for sentence in drift.shared_file_notes(layout, tree, present)]
    lines = [*map(str, differing), *shared_notes, *_notes(layout, {**present, **tree})]
    if not differing:
        lines.append(f"no drift: {folder / layout.path} is what {source} renders ({count(len(tree), 'file')})")
    return lines, len(differing)


def _made(source: str) -> tuple[ClusterSpec, Layout, Mapping[str, str]]:
    """Return a spec, its folder layout, and the rendered files by path.

    Raises NothingToDeliver, or SpecErrors for a broken rule.
    """
    spec = sources.read(source)[1]
    if spec.delivery.argo_cd is None:
        raise NothingToDeliver(f"{spec.name} is not delivered by Argo CD, so there is no tree to render")
    known = catalog.load()
    catalog.require(spec, known)
    return spec, Layout.of(spec), render_tree(spec, catalog.resolve(spec, known))


def _read(folder: Path, layout: Layout) -> dict[str, str]:
    """Return the text of bringup's files in a checkout by path: those of all environments, and the common ones.

    Binary files are decoded with replacement. Files behind a linked folder are left out, as Git does.
    """
    if any((folder / path).is_symlink() for path in _upwards(layout.environments)):
        return {}
    below = (folder / layout.environments).rglob("*")
    paths = (path for path in (*below, *(folder / name for name in layout.common)) if path.is_file() or path.is_symlink())
    return {path.relative_to(folder).as_posix(): _text(path) for path in paths}


def _text(path: Path) -> str:
    """Return a file's content as Git keeps it; for a link, a text with its target."""
    return f"a link to {path.readlink()}" if path.is_symlink() else path.read_bytes().decode(errors="replace")


def _upwards(path: str) -> list[str]:
    """Return the path and all folders above it up to the checkout's root, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[: length + 1]) for length in range(len(parts))]


def _refuse_others(folder: Path, path: str) -> None:
    """Raise NoFolder if a file cannot be written, or would land outside the checkout. The checkout itself may be a link."""
    *above, itself = (folder / part for part in _upwards(path))
    for parent in above:
        if parent.is_symlink():
            raise NoFolder(f"{parent} is a link, and nothing is written through it")
        if parent.exists() and not parent.is_dir():
            raise NoFolder(f"{parent} is no folder")
    if itself.is_symlink() or (itself.exists() and not itself.is_file()):
        raise NoFolder(f"{itself} is no ordinary file, and is not written over")


def _drop_empty(path: Path, home: Path) -> None:
    """Remove folders that a removed file left empty, as Git would."""
    for parent in path.parents:
        if parent == home or any(parent.iterdir()):
            return
        parent.rmdir()


def _notes(layout: Layout, files: Mapping[str, str]) -> list[str]:
    """Return notes on environments of the checkout that differ by more than values, revision and name, which may be intended."""
    differences = drift.environment_differences(layout, files)
    return [f"note: environments differ in more than values: {sentence}" for sentence in differences]
