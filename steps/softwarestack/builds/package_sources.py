"""Source archives of packages: each is fetched once, checked by the lock's SHA-256, and kept in the store under that digest.

STORE/stacks/sources/SHA256/NAME
"""

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from steps.softwarestack.contract.package_build import BuildFailure
from steps.softwarestack.contract.stack_input import StackPackage, StackSource


class SourceArchiveError(Exception):
    """Error: a source is not to be had; `failure` is fetch or checksum."""

    def __init__(self, failure: BuildFailure, message: str) -> None:
        super().__init__(message)
        self.failure = failure


class SourceShelf:
    """Sources in the store, and the folders of the site in which they are looked for before the network is asked."""

    def __init__(self, folder: Path, folders: Iterable[str]) -> None:
        self.folder = folder
        self._folders = tuple(map(Path, folders))

    def path(self, source: StackSource) -> Path:
        """Return the place of a source in the store, which need not exist."""
        return self.folder / source.sha256 / source.name

    def shared(self, name: str) -> Path:
        """Create and return a folder in the store that a builder's own programs share, such as a cache of indices."""
        folder = self.folder / "shared" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def missing(self, package: StackPackage) -> tuple[StackSource, ...]:
        """Return the sources of a package that neither the store nor a folder of the site has.

        Sources in folders of the site are copied. Raises SourceArchiveError if a folder has the file with another digest only:
        whoever put it there meant it to be used.
        """
        return tuple(source for source in package.sources if not self.path(source).is_file() and not self._copied(package, source))

    def _copied(self, package: StackPackage, source: StackSource) -> bool:
        wrong = ""
        for path in self._candidates(package, source):
            digest = _sha256(path)
            if digest == source.sha256:
                self.keep(source, path)
                return True
            wrong = f"{path} has the SHA-256 {digest}, the lock says {source.sha256}"
        if wrong:
            raise SourceArchiveError(BuildFailure.CHECKSUM, wrong)
        return False

    def _candidates(self, package: StackPackage, source: StackSource) -> Iterator[Path]:
        """Yield the files of this name in folders of the site, by EasyBuild's layout and in the folder itself."""
        for folder in self._folders:
            for place in (folder, folder / source.sha256, folder / package.name[0].lower() / package.name, folder / package.name):
                if (place / source.name).is_file():
                    yield place / source.name

    def keep_fetched(self, sources: Iterable[StackSource], fetched: Path) -> None:
        """Keep sources from the folder into which a program fetched them. Raises SourceArchiveError for a missing or wrong one."""
        for source in sources:
            paths = [path for path in fetched.rglob(source.name) if path.is_file() and not path.is_symlink()]
            digests = {_sha256(path): path for path in paths}
            if source.sha256 in digests:
                self.keep(source, digests[source.sha256])
            elif digests:
                other = next(iter(digests))
                raise SourceArchiveError(
                    BuildFailure.CHECKSUM, f"{source.name} was fetched with the SHA-256 {other}, the lock says {source.sha256}"
                )
            else:
                raise SourceArchiveError(BuildFailure.FETCH, f"{source.name} was not fetched, and no folder of `sources` has it")

    def keep(self, source: StackSource, path: Path) -> None:
        """Copy a source into the store; it appears whole, by a rename. Raises OSError."""
        target = self.path(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{secrets.token_hex(6)}.part")
        try:
            shutil.copyfile(path, temporary)
            temporary.chmod(0o644)
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
