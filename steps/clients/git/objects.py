"""Object store of a Git repository: a bare repository with a limit on what is fetched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steps.errors import BadTask

if TYPE_CHECKING:
    from dulwich.repo import Repo


def bare(folder: Path, most_bytes: int | None = None) -> Repo:
    """Return a new repository in a folder that does not exist yet.

    A fetch raises BadTask as soon as its pack has more than `most_bytes`, before it fills the disk or is unpacked.
    """
    from dulwich.object_store import DiskObjectStore
    from dulwich.repo import Repo

    class Bounded(DiskObjectStore):
        def add_pack(self) -> tuple[Any, Callable[[], Any], Callable[[], None]]:
            file, commit, abort = super().add_pack()
            return file if most_bytes is None else _Counted(file, most_bytes), commit, abort

    folder.mkdir(parents=True)
    Repo.init_bare(str(folder)).close()
    return Repo(str(folder), object_store=Bounded(str(folder / "objects")), bare=True)


class _Counted:
    """A file that accepts a limited number of bytes."""

    def __init__(self, file: Any, most: int) -> None:
        self._file = file
        self._most = self._left = most

    def write(self, some: bytes) -> int:
        self._left -= len(some)
        if self._left < 0:
            raise BadTask(
                f"the newest commit of the repository has more than {self._most / (1 << 20):g} MiB, all of its folders together",
                hint="keep the spec, its recipes and their files in a repository of their own",
            )
        return int(self._file.write(some))
