"""The lock file beside a recipe: every package of every layer with digest and place, one package a line, for review."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON
from steps.nodeimage.contract.resolved_recipe import Package
from workflows.podimage.errors import BuildError

SCHEMA: Final = 1
LARGEST_BYTES: Final = 8 << 20


class LockedLayer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The packages that one layer adds, sorted by name."""

    name: str
    packages: tuple[Package, ...]


class Lock(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a lock file.

    `sources` are names of repositories, without mirror hosts; a package's `source` is an index of it.
    """

    recipe: str
    distribution: str
    release: str
    architecture: str
    sources: tuple[str, ...]
    layers: tuple[LockedLayer, ...]
    schema: int = SCHEMA

    def layer(self, name: str) -> tuple[Package, ...]:
        """Return the packages of a layer; empty if the lock has no layer of this name."""
        return next((layer.packages for layer in self.layers if layer.name == name), ())

    @property
    def has_source_versions(self) -> bool:
        """Return True if the lock has source versions; old locks have none.

        A package has one only if its source has another version than itself, and every release has such packages.
        """
        return any(package.source_version for layer in self.layers for package in layer.packages)

    @property
    def packages(self) -> dict[str, Package]:
        """All packages of all layers by name."""
        return {package.name: package for layer in self.layers for package in layer.packages}


def read(path: Path, command: str) -> Lock:
    """Return the lock in a file. Raises BuildError, whose hint is `command`, which makes the lock anew."""
    hint = f"make it: {command}"
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_BYTES + 1)
    except OSError as error:
        problem = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error.strerror}"
        raise BuildError(f"the lock {path} {problem}", hint=hint) from error
    if len(data) > LARGEST_BYTES:
        raise BuildError(f"{path} has more than {LARGEST_BYTES >> 20} MiB", hint=hint)
    try:
        lock = msgspec.json.decode(data, type=Lock)
    except UNREADABLE_JSON as error:
        raise BuildError(f"{path} is no lock: {error}", hint=hint) from error
    except RecursionError as error:
        raise BuildError(f"{path} is no lock: it is nested too deeply", hint=hint) from error
    if lock.schema != SCHEMA:
        raise BuildError(f"{path} has schema {lock.schema}, this version reads {SCHEMA}", hint=hint)
    if problem := next(_problems(lock), ""):
        raise BuildError(f"{path} is no lock: {problem}", hint=hint)
    return lock


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,199}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+~:_-]{0,199}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PATH = re.compile(r"(?:\./)?[A-Za-z0-9][A-Za-z0-9.+~:%_-]*(?:/[A-Za-z0-9][A-Za-z0-9.+~:%_-]*)*")
_SOURCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9 .+~:/_-]{0,499}")
_LARGEST_PACKAGE: Final = 16 << 30


def _problems(lock: Lock) -> Iterator[str]:
    """Yield what in a lock cannot be: a lock may come from outside, and its names become paths, URLs and arguments."""
    for field in ("recipe", "distribution", "release", "architecture"):
        if not _NAME.fullmatch(value := getattr(lock, field)):
            yield f"{field} {value!r} is no name"
    yield from (f"source {source!r} is no name of a repository" for source in lock.sources if not _SOURCE.fullmatch(source))
    names = [layer.name for layer in lock.layers]
    yield from (
        f"layer {name!r} is no name, or is listed twice" for name in names if not _NAME.fullmatch(name) or names.count(name) > 1
    )
    for layer in lock.layers:
        seen = set[str]()
        for package in layer.packages:
            yield from (
                f"package {package.name!r} of layer {layer.name}: {why}" for why in _package_problems(package, len(lock.sources))
            )
            if package.name in seen:
                yield f"package {package.name!r} is twice in layer {layer.name}"
            seen.add(package.name)


def _package_problems(package: Package, sources: int) -> Iterator[str]:
    if not _NAME.fullmatch(package.name):
        yield "it has no name that a package can have"
    for field, value in (("version", package.version), ("source_version", package.source_version or "1")):
        if not _VERSION.fullmatch(value):
            yield f"{field} {value!r} is no version"
    if not _NAME.fullmatch(package.architecture):
        yield f"architecture {package.architecture!r} is no name"
    if not _SHA256.fullmatch(package.sha256):
        yield f"sha256 {package.sha256[:80]!r} is no digest of 64 hexadecimal digits"
    if not 0 < package.size <= _LARGEST_PACKAGE:
        yield f"size {package.size} is not between 1 byte and {_LARGEST_PACKAGE >> 30} GiB"
    if not _PATH.fullmatch(package.path):
        yield f"path {package.path[:200]!r} is no relative path of plain names"
    if not 0 <= package.source < max(1, sources):
        yield f"source {package.source} is none of the {sources} that the lock lists"


def text(lock: Lock) -> str:
    """Return the JSON text of a lock file, one package a line; equal locks give equal bytes."""
    fields = {field: getattr(lock, field) for field in ("schema", "recipe", "distribution", "release", "architecture")}
    lines = [f" {json.dumps(key)}: {json.dumps(value)}," for key, value in fields.items()]
    sources = ",\n".join(f"  {json.dumps(source)}" for source in lock.sources)
    layers = ",\n".join(_layer_text(layer) for layer in lock.layers)
    return "\n".join(["{", *lines, f' "sources": [\n{sources}\n ],', f' "layers": [\n{layers}\n ]', "}", ""])


def _layer_text(layer: LockedLayer) -> str:
    packages = ",\n".join(f"   {msgspec.json.encode(package).decode()}" for package in layer.packages)
    return f'  {{"name": {json.dumps(layer.name)}, "packages": [\n{packages}\n  ]}}'
