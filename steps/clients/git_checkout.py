"""Writes the files of a commit into an empty folder, as a build reads them; nothing of it leads out of that folder."""

from collections.abc import Iterable
from pathlib import Path

from msgspec import Struct

from steps.errors import BadTask

_EXECUTABLE = 0o100


class Entry(Struct, frozen=True, kw_only=True):
    """A file or a link of a commit: path from the repository's root, mode as Git has it, bytes (of a link: where it leads)."""

    path: str
    mode: int
    content: bytes

    @property
    def is_file(self) -> bool:
        """Whether it is a file, and not a link."""
        return self.mode & 0o170000 == 0o100000


def write(entries: Iterable[Entry], folder: Path) -> None:
    """Files with their right to be executed, links as links. Raises BadTask where one lies outside of the folder, or leads there.

    What leads out would show what only the reader of the repository has, such as its credentials.
    """
    links = []
    for entry in entries:
        if entry.is_file:
            place = _place(folder, entry.path)
            place.write_bytes(entry.content)
            place.chmod(0o755 if entry.mode & _EXECUTABLE else 0o644)
        else:
            links.append(entry)
    for entry in links:  # last: no file is ever written through one
        _place(folder, entry.path).symlink_to(entry.content.decode(errors="surrogateescape"))
    for entry in links:  # where one leads is known once all are there
        if not (folder / entry.path).resolve().is_relative_to(folder.resolve()):
            leads = entry.content.decode(errors="replace")
            raise BadTask(
                f"the link {entry.path} of the repository leads out of it, to {leads}", hint="let it lead to a file of it"
            )


def _place(folder: Path, path: str) -> Path:
    place = folder / path
    if not place.resolve().is_relative_to(folder.resolve()):
        raise BadTask(f"{path!r} of the repository lies outside of it", hint="take it out of the repository")
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
