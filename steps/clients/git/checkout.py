"""Writes the files of a commit into an empty folder for a build. No file or link may lead out of that folder."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from steps.clients.git import errors
from steps.clients.git.git_objects import GitEntry
from steps.errors import BadTask

MOST_ENTRIES, MOST_BYTES, LONGEST_PATH = 20_000, 64 << 20, 4096
"""Limits of a checkout: a spec with recipes, locks and the recipes' own files, normally 800 kB at most."""
_EXECUTABLE = 0o100


def bounded_entries(entries: Iterable[GitEntry]) -> list[GitEntry]:
    """Return the files and links among the entries. Raises BadTask above the limits, because trees can nest themselves."""
    kept, size = list[GitEntry](), 0
    for count, entry in enumerate(entries, start=1):
        size += len(entry.content)
        if count > MOST_ENTRIES or size > MOST_BYTES or len(entry.path) > LONGEST_PATH:
            raise BadTask(
                f"the folder of the spec has more than {MOST_ENTRIES} entries, {MOST_BYTES >> 20} MiB, or a path of more than "
                f"{LONGEST_PATH} characters",
                hint="keep the spec, its recipes and their files in a folder of their own",
            )
        if not entry.is_folder:
            kept.append(entry)
    return kept


def write(entries: Iterable[GitEntry], folder: Path) -> None:
    """Write the files with their executable bit, and the links.

    Raises BadTask if an entry is outside of the folder, leads out of it, or cannot be written, and StoreBusy if the disk is full. A
    link that leads out could show files of this machine, such as credentials of the repository.
    """
    links = []
    for entry in entries:
        if entry.is_file:
            with _told(entry):
                place = _place(folder, entry.path)
                place.write_bytes(entry.content)
                place.chmod(0o755 if entry.mode & _EXECUTABLE else 0o644)
        elif not entry.is_folder:
            links.append(entry)
    for entry in links:  # after the files, so that no file is written through a link
        with _told(entry):
            _place(folder, entry.path).symlink_to(entry.content.decode(errors="surrogateescape"))
    for entry in links:  # the target of a link may be another link, so check when all exist
        with _told(entry):
            if not (folder / entry.path).resolve().is_relative_to(folder.resolve()):
                problem = f"the link {entry.path!r} of the repository leads out of it, to {entry.content.decode(errors='replace')}"
                raise BadTask(problem, hint="let it lead to a file of it")


def _place(folder: Path, path: str) -> Path:
    place = folder / path
    if not place.resolve().is_relative_to(folder.resolve()):
        raise BadTask(f"{path!r} of the repository lies outside of it", hint="take it out of the repository")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def _told(entry: GitEntry) -> Iterator[None]:
    """Turn an error of the file system within the block into BadTask about the entry: too long a name, a bad link, a NUL."""
    try:
        yield
    except (OSError, RuntimeError, ValueError) as error:
        if isinstance(error, OSError) and errors.is_full(error):
            raise errors.full(error) from error
        circle = "its links are a circle" if isinstance(error, RuntimeError) else str(error)
        why = error.strerror if isinstance(error, OSError) else circle
        raise BadTask(f"{entry.path!r} of the repository cannot be laid out: {why}", hint="mend it in the repository") from error
