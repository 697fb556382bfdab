"""Published release trees of any product, as commands open them: the root and product that an argument names, and what is in it."""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct

from steps.clients.releases.release_tree import ALL, ReleaseTree
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract import release_layout
from steps.contract.detachment import Factory
from steps.contract.release_layout import ReleaseTarget
from workflows.engines import run_secrets
from workflows.engines.folders import StateFolder
from workflows.stages.host_access import SecretFile

P = TypeVar("P", bound=ReleaseTarget)
_ANY = ".any"
"""Name of no product, with which a root is looked at to see which products it has."""


class NoTree(ValueError):
    """Error for an argument that leads to no published tree or product; the message says why, `hint` what to do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class OpenedTree(Struct, Generic[P], frozen=True, kw_only=True):
    """A published tree with an open transport to it, its target, and the product chosen on the command line (empty: all).

    `noun` names a product in messages, as `--noun` does in the command line; `hint` is for errors.
    """

    transport: TreeTransport
    place: P
    product: str
    noun: str
    hint: str

    @property
    def products(self) -> tuple[str, ...]:
        """Return the names of all products of the tree."""
        return self.transport.look(_ANY).products

    def looks(self, *, digests: bool = False) -> tuple[ReleaseTree, ...]:
        """Return the content of each chosen product in the tree, with `digests` also the files' digests.

        Raises NoTree if there is no product.
        """
        paths = (ALL,) if digests else ()
        names = (self.product,) if self.product else self.products
        release_trees = tuple(self.transport.look(name, paths) for name in names)
        if not release_trees or not any(tree.versions or tree.current for tree in release_trees):
            which = f" {self.product}" if self.product else ""
            raise NoTree(f"{self.transport.where} holds no published {self.noun}{which}", self.hint)
        return release_trees

    def only(self) -> str:
        """Return the name of the only or chosen product.

        Raises NoTree if it is not in the tree, or if none is chosen among several.
        """
        names = self.products
        if self.product in names or (not self.product and len(names) == 1):
            return self.product or names[0]
        message = f"{self.transport.where} holds {', '.join(names) or f'no {self.noun}'}: say with --{self.noun} which is meant"
        raise NoTree(message, self.hint)


def root_and_product(folder: Path, product: str) -> tuple[Path, str]:
    """Return the root and the product that a folder on the command line means: a root itself, or a product's folder in one."""
    inner = folder.absolute()
    return (inner.parent, inner.name) if (inner / release_layout.VERSIONS).is_dir() else (inner, product)


@contextmanager
def signing_key(tree: str, own: Path | None, key_of: Callable[[Path], SecretFile | None]) -> Iterator[Path | None]:
    """Open the publisher's private key in this context: the user's own file, else that of the spec `tree`, by `key_of`.

    Yield None where there is none on this machine: a rollback in need must not wait for a key.
    """
    path = Path(tree)
    if own is not None or not path.is_file():
        yield own
        return
    file = key_of(path)
    try:
        contents = run_secrets.read_secrets([file], path.parent, os.environ) if file and not file.secret else {}
    except run_secrets.SecretMissing:
        contents = {}
    with tempfile.TemporaryDirectory(prefix="bringup-") as place:
        yield write_secret(Path(place), file.name, contents[file.name]) if file and contents else None


def write_secret(folder: Path, name: str, data: bytes) -> Path:
    """Write a secret to a file in a folder and return its path; the mode is set before the secret is in the file."""
    file = folder / name
    file.touch(mode=0o600)
    file.write_bytes(data)
    return file


def factory_of(folders: Iterable[str], hosts: Iterable[str]) -> Factory:
    """Return the factory that a published tree must not need: this machine's store, and further folders and hosts."""
    paths = [str(StateFolder.of_environment().store), *(folder.rstrip("/") or "/" for folder in folders)]
    # folders as named, and with links resolved
    return Factory(folders=tuple(dict.fromkeys([*paths, *map(os.path.realpath, paths)])), hosts=tuple(hosts))


def inside_factory(location: str, host: str, factory: Factory) -> Iterator[tuple[str, str]]:
    """Yield (place, reason) if a tree itself lies on a host of the factory, or in its folders. `host` is empty on this machine."""
    if host:
        if host.lower() in map(str.lower, factory.hosts):
            yield location, f"the tree itself lies on a host of the factory: {host}"
        return
    for folder in factory.folders:
        if any(Path(path).is_relative_to(folder) for path in (location, os.path.realpath(location))):
            yield location, f"the tree itself lies in the store of the factory, or another folder of it: {folder}"
            return


def looked_for(factory: Factory) -> str:
    """Return in words which folders and hosts of the factory were looked for."""
    hosts = f"hosts {', '.join(factory.hosts)}" if factory.hosts else "no host was named to look for (--factory-host)"
    return f"{', '.join(factory.folders)}; {hosts}"
