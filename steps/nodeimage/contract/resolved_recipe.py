"""Resolved recipe: the content of one node image, layer by layer, with every package named by its digest.

The compiler writes `image.recipe.json` beside the tasks and the builder reads it; tasks name it by its digest.
"""

from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical, digest
from steps.nodeimage.contract.image_tests import ImageTest

SCHEMA: Final = 1
FILE: Final = "image.recipe.json"
"""File name of the resolved recipe in the tasks folder."""
FILES: Final = "image.files.json"
"""File name, in the tasks folder, of the recipe's own files: sha256 → base64 of the bytes."""
MAX_BYTES: Final = 800_000
"""Most bytes of the recipe, its files and its groups together, which share a ConfigMap of at most 1 MiB with the tasks."""


class PackageRepository(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Repository that packages come from: apt's `deb URL SUITE COMPONENTS`.

    `keyring` is a file, on the machine that makes the lock, with the key that signs the repository; a resolved recipe has none.
    """

    url: str
    suite: str
    components: tuple[str, ...] = ("main",)
    keyring: str = ""


class Package(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package, locked to a version and to the digest of its bytes.

    `path` is its place below the URL of the repository, `source` the index of that repository in the recipe. `asked`: the recipe
    names it, else it is a dependency. `essential`: part of the first, smallest root. `source_version`: version of the source
    package if that differs, by which vulnerability feeds count; a resolved recipe has none.
    """

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
    """File (`sha256` of its bytes), link (`link`) or folder (neither) that a layer puts at the absolute `path`."""

    path: str
    sha256: str = ""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class LayerCommand(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Shell script (`/bin/sh -e`) that runs as root in the root file system while a layer is built, without network.

    `secrets` are names of secret files that this command alone sees, at /run/secrets/NAME; a secret is no part of any key.
    """

    run: str
    secrets: tuple[str, ...] = ()


class LayerService(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """systemd unit that a layer enables, disables or masks."""

    unit: str
    state: str = "enabled"


class LayerUser(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """User that a layer adds, never with a password. `gid` 0: equal to `uid`. `keys` are SSH public keys."""

    name: str
    uid: int
    gid: int = 0
    groups: tuple[str, ...] = ()
    shell: str = "/bin/bash"
    home: str = ""
    keys: tuple[str, ...] = ()


class ResolvedLayer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content that one layer adds to the layer below, applied in this order: packages, users, files, commands, services.

    `budget_mib` limits the MiB that it adds to the root; 0: no limit.
    """

    name: str
    packages: tuple[Package, ...] = ()
    users: tuple[LayerUser, ...] = ()
    files: tuple[PlacedFile, ...] = ()
    commands: tuple[LayerCommand, ...] = ()
    services: tuple[LayerService, ...] = ()
    budget_mib: int = 0


class Recipe(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Recipe of one node image with all packages resolved; the content of `image.recipe.json`.

    `epoch` is the time of every file (SOURCE_DATE_EPOCH, seconds), `kernel` the package with the kernel, `budget_mib` the limit of
    the squashfs. `origin` says where the recipe came from (a commit, a folder), and is no part of any key.
    """

    name: str
    distribution: str
    release: str
    architecture: str
    epoch: int
    sources: tuple[PackageRepository, ...]
    layers: tuple[ResolvedLayer, ...]
    kernel: str
    kernel_arguments: tuple[str, ...] = ()
    tests: tuple[ImageTest, ...] = ()
    budget_mib: int = 0
    origin: str = ""
    schema: int = SCHEMA

    @property
    def digest(self) -> str:
        """Digest by which tasks name the recipe. Origin and mirrors are not covered, because the bytes of packages are locked."""
        # as it is read: 5 seconds are 5.0 then
        return digest(decode(encode(msgspec.structs.replace(self, origin="", sources=()))))

    def layer(self, name: str) -> ResolvedLayer:
        """Return the recipe's layer of this name. Raises KeyError."""
        return {layer.name: layer for layer in self.layers}[name]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the recipe's layers, lowest first."""
        return tuple(layer.name for layer in self.layers)


class RecipeError(ValueError):
    """Error: a file is no resolved recipe that this version can read; the message says why."""


def encode(recipe: Recipe) -> bytes:
    """Return the bytes of the file `image.recipe.json`."""
    return canonical(recipe)


def decode(data: bytes) -> Recipe:
    """Return the recipe in the bytes of `image.recipe.json`. Raises RecipeError."""
    if len(data) > MAX_BYTES:
        raise RecipeError(f"{FILE} has {len(data)} bytes, limit {MAX_BYTES}")
    try:
        recipe = msgspec.json.decode(data, type=Recipe)
    except UNREADABLE_JSON as error:
        raise RecipeError(f"{FILE}: {error}") from error
    if recipe.schema != SCHEMA:
        raise RecipeError(f"{FILE} has schema {recipe.schema}, this version reads {SCHEMA}: render again with this version")
    return recipe
