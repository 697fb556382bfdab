"""A resolved recipe: what one node image is made of, layer by layer, every package by its digest.

The compiler writes it (`recipe.json` beside the tasks), the builder reads it; tasks name it by its digest.
"""

from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical, digest
from steps.contract.image.testing import ImageTest

SCHEMA: Final = 1
FILE: Final = "image.recipe.json"
"""Its name in the tasks folder."""
FILES: Final = "image.files.json"
"""Name in the tasks folder of the recipe's own files: sha256 → base64 of the bytes."""
MAX_BYTES: Final = 800_000
"""Limit of both files and the groups with their machines: they travel in a ConfigMap, of 1 MiB at most, beside the tasks."""


class Source(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A package repository: apt's `deb URL SUITE COMPONENTS`. `keyring` is a file of who
    makes the lock, by which it is signed; a resolved recipe has none."""

    url: str
    suite: str
    components: tuple[str, ...] = ("main",)
    keyring: str = ""


class Package(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One locked package. `path` is its place below the repository's URL, `source` the index of that repository in the recipe;
    `asked`: the recipe names it (else it came along); `essential`: part of the first, smallest root; `source_version`: that of the
    source package where it is another one, by which feeds of vulnerabilities count; a resolved recipe has none."""

    name: str
    version: str
    architecture: str
    sha256: str
    size: int
    path: str
    source: int = 0
    asked: bool = False
    essential: bool = False
    source_version: str = ""


class PlacedFile(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file (`sha256` of its bytes), a link (`link`) or a folder (neither) at the absolute `path`. `mode` is octal, as 0o644."""

    path: str
    sha256: str = ""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class Command(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A shell script (`/bin/sh -e`) that runs in the layer as root, without network. `secrets` are names of secret files that it
    alone sees, at /run/secrets/NAME; a secret is no part of any key."""

    run: str
    secrets: tuple[str, ...] = ()


class Service(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A systemd unit: enabled, or disabled, or masked."""

    unit: str
    state: str = "enabled"


class User(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A user (never with a password). `gid` 0: as `uid`. `keys` are SSH public keys."""

    name: str
    uid: int
    gid: int = 0
    groups: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    home: str = ""
    keys: tuple[str, ...] = ()


class Layer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one layer adds to the one below, applied in this order: packages, users, files, commands, services.
    `budget_mib` bounds what it adds to the root, 0: no bound."""

    name: str
    packages: tuple[Package, ...] = ()
    users: tuple[User, ...] = ()
    files: tuple[PlacedFile, ...] = ()
    commands: tuple[Command, ...] = ()
    services: tuple[Service, ...] = ()
    budget_mib: int = 0


class Recipe(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node image, resolved. `epoch` is the time of every file (SOURCE_DATE_EPOCH, seconds); `kernel` is the package with the
    kernel; `origin` says where the recipe came from (a commit, a folder), and is no part of any key. `budget_mib`: the squashfs."""

    name: str
    distribution: str
    release: str
    architecture: str
    epoch: int
    sources: tuple[Source, ...]
    layers: tuple[Layer, ...]
    kernel: str
    kernel_arguments: tuple[str, ...] = ()
    tests: tuple[ImageTest, ...] = ()
    budget_mib: int = 0
    origin: str = ""
    schema: int = SCHEMA

    @property
    def digest(self) -> str:
        """Digest of all that the image is, by which tasks name it: where the recipe came from, and which mirror has the packages,
        whose bytes are locked, is no part of it."""
        plain = msgspec.structs.replace(self, origin="", sources=())
        return digest(decode(encode(plain)))  # as it is read: 5 seconds are 5.0 then

    def layer(self, name: str) -> Layer:
        """The layer of a name. Raises KeyError."""
        return {one.name: one for one in self.layers}[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the layers, lowest first."""
        return tuple(one.name for one in self.layers)


class RecipeError(ValueError):
    """The file is no resolved recipe of this version; the message names the place."""


def encode(recipe: Recipe) -> bytes:
    """The bytes of `recipe.json`."""
    return canonical(recipe)


def decode(data: bytes) -> Recipe:
    """Read a resolved recipe. Raises RecipeError."""
    if len(data) > MAX_BYTES:
        raise RecipeError(f"{FILE} has {len(data)} bytes, limit {MAX_BYTES}")
    try:
        found = msgspec.json.decode(data, type=Recipe)
    except msgspec.MsgspecError as error:
        raise RecipeError(f"{FILE}: {error}") from error
    if found.schema != SCHEMA:
        raise RecipeError(f"{FILE} has schema {found.schema}, this version reads {SCHEMA}: render again with this version")
    return found
