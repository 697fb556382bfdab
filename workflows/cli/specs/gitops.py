"""The tree of a spec in a folder: written, or compared with what lies there."""

from collections.abc import Mapping
from pathlib import Path

from steps.contract.exit import ExitCode
from workflows import catalog
from workflows.cli import output
from workflows.cli.specs import sources
from workflows.gitops import drift
from workflows.gitops.layout import Layout
from workflows.gitops.tree import tree
from workflows.spec import ClusterSpec


class NothingToDeliver(ValueError):
    """A spec whose charts Argo CD does not deliver."""

    hint = "write delivery: {mode: argo_cd, argo_cd: {repo: URL, revision: TAG, project: NAME}}"


class NoFolder(ValueError):
    """A folder that is none, or has something where a file of ours belongs."""

    hint = "give the root of a checkout of the repository that delivery.argo_cd.repo names"


def write(source: str, folder: Path) -> int:
    """Write the tree into a checkout. The overlay is made once; files of ours that are no longer rendered are removed."""
    spec, layout, made = _made(source)
    if folder.exists() and not folder.is_dir():
        raise NoFolder(f"{folder} is no folder")
    found = _read(folder, layout)
    kept = layout.has_overlay(found)
    wanted = {path: text for path, text in made.items() if not (kept and path.startswith(f"{layout.overlay}/"))}
    changed = [path for path, text in wanted.items() if found.get(path) != text]
    gone = [one.path for one in drift.differences(layout, made, found) if one.what == "extra"]
    for path in changed:
        _refuse_others(folder, path)
    for path in changed:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(wanted[path], encoding="utf-8")
    for path in gone:
        (folder / path).unlink()
        _drop_empty(folder / path, folder / layout.home)
    output.lines(f"removed {path}: {spec.name} no longer renders it" for path in gone)
    left = f"; {layout.overlay} is left as it is" if kept else ""
    output.lines([f"wrote {output.count(len(changed), 'file')} of {len(made)} to {folder / layout.path}{left}"])
    output.lines(_notes(layout, {**found, **made}))
    return ExitCode.OK


def check(source: str, folder: Path) -> int:
    """Compare a checkout with the tree: 0 without drift, 65 with each file that differs."""
    _, layout, made = _made(source)
    if not folder.is_dir():
        raise NoFolder(f"{folder} is no folder")
    found = _read(folder, layout)
    differing = drift.differences(layout, made, found)
    left = [f"note: {sentence}" for sentence in drift.left_to_others(layout, made, found)]
    output.lines([*map(str, differing), *left, *_notes(layout, {**found, **made})])
    if not differing:
        output.lines([f"no drift: {folder / layout.path} is what {source} renders ({output.count(len(made), 'file')})"])
        return ExitCode.OK
    wrong = output.count(len(differing), "file")
    output.error(f"drift: {wrong} below {folder} differ from {source}", f"bringup render {source} --gitops {folder}, and commit it")
    return ExitCode.GATE_FAILED


def _made(source: str) -> tuple[ClusterSpec, Layout, Mapping[str, str]]:
    """The spec of a source, its layout and its tree. Raises NothingToDeliver, or SpecErrors for a breach of a rule."""
    spec = sources.read(source)[1]
    if spec.delivery.argo_cd is None:
        raise NothingToDeliver(f"{spec.name} is not delivered by Argo CD, so there is no tree to render")
    known = catalog.load()
    catalog.require(spec, known)
    return spec, Layout.of(spec), tree(spec, catalog.resolve(spec, known))


def _read(folder: Path, layout: Layout) -> dict[str, str]:
    """The files that concern us: those of all environments, and the common ones. What is no text is shown as such; what lies
    behind a linked folder is not there, as for Git."""
    if any((folder / path).is_symlink() for path in _upwards(layout.environments)):
        return {}
    below = (folder / layout.environments).rglob("*")
    paths = (path for path in (*below, *(folder / name for name in layout.common)) if path.is_file() or path.is_symlink())
    return {path.relative_to(folder).as_posix(): _text(path) for path in paths}


def _text(path: Path) -> str:
    """What Git would keep of it: of a link its target."""
    return f"a link to {path.readlink()}" if path.is_symlink() else path.read_bytes().decode(errors="replace")


def _upwards(path: str) -> list[str]:
    """The path and all folders above it, the outermost first, up to the checkout's root."""
    parts = path.split("/")
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _refuse_others(folder: Path, path: str) -> None:
    """Raises NoFolder where a file cannot be written, or would land outside the checkout. The checkout itself may be a link."""
    *above, itself = (folder / one for one in _upwards(path))
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
    """Environments should differ by values, revision and name; where they differ in more, it may be meant, so it is only told."""
    return [f"note: environments differ in more than values: {sentence}" for sentence in drift.unlike(layout, files)]
