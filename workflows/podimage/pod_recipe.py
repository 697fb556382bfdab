"""Recipes of the step image and the builder image, read and checked together with their locks.

The builder image is the step image with more packages, wheels and folders; its recipe and locks in `images/builder` have only
those.
"""

import datetime
import re
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import TypeVar

import msgspec
import yaml
from msgspec import Struct

from steps import __version__
from steps.contract.canonical import digest
from workflows.podimage import file_tree
from workflows.podimage.errors import BuildError

STEP, BUILDER = Path("images/step"), Path("images/builder")
RECIPE, PACKAGES, WHEELS, FILES = "recipe.yaml", "packages.lock", "wheels.lock", "files"
RELOCK = "run `bringup image step lock` and review what changed"
RELOCK_BUILDER = "run `bringup image step lock --builder` and review what changed"

T = TypeVar("T")
_DEB = re.compile(r"([a-z0-9][a-z0-9+.-]+)=(\S+) ([0-9a-f]{64}) (\S+\.deb)")
_WHEEL = re.compile(r"([a-z0-9][a-z0-9-]*)==(\S+) --hash=sha256:([0-9a-f]{64})")


class Debian(Struct, frozen=True, forbid_unknown_fields=True):
    """Debian packages of an image: archive, wanted packages, dependencies (`without`) and file patterns (`leave_out`) to omit."""

    archive: str
    repositories: tuple[str, ...]
    keyring: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()


class Folder(Struct, frozen=True, forbid_unknown_fields=True):
    """A folder of the image that no package contains. `mode` is octal, `owner` is uid and gid."""

    path: str
    mode: str = "755"
    owner: int = 0


class Wheels(Struct, frozen=True, forbid_unknown_fields=True):
    """Python wheels of an image: group of uv.lock, Python version, platforms, and their folder in the image."""

    group: str
    python: str
    platforms: tuple[str, ...]
    folder: str


class SourceCopy(Struct, frozen=True, forbid_unknown_fields=True):
    """Folders of the source tree to copy, their place in the image, names to leave out, and folders to compile to bytecode."""

    folder: str
    copy: tuple[str, ...]
    leave_out: tuple[str, ...]
    bytecode: tuple[str, ...] = ()


class ContainerConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Start settings of the image's containers: user, entry point, working folder, environment."""

    user: str
    entrypoint: tuple[str, ...]
    workdir: str
    env: dict[str, str]


class PodRecipe(Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a pod image that people choose, before anything is locked; `images/step/recipe.yaml` explains each."""

    name: str
    title: str
    architecture: str
    epoch: int
    debian: Debian
    folders: tuple[Folder, ...]
    wheels: Wheels
    application: SourceCopy
    config: ContainerConfig
    bytecode: bool = True

    @property
    def created(self) -> str:
        """Time of the image as RFC 3339 text."""
        return datetime.datetime.fromtimestamp(self.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class More(Struct, frozen=True, forbid_unknown_fields=True):
    """Additions of the builder image to the step image; see the comments of `images/builder/recipe.yaml`."""

    name: str
    title: str
    user: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    group: str = ""
    """Group of uv.lock with further wheels; empty: none."""
    copy: tuple[str, ...] = ()
    bytecode: tuple[str, ...] = ()

    def on(self, step: PodRecipe) -> PodRecipe:
        """Return the step image's recipe with name, title, user and copied folders of the builder image."""
        config, ours = msgspec.structs.replace(step.config, user=self.user), step.application
        code = msgspec.structs.replace(ours, copy=ours.copy + self.copy, bytecode=ours.bytecode + self.bytecode)
        return msgspec.structs.replace(step, name=self.name, title=self.title, config=config, application=code)


class Deb(Struct, frozen=True):
    """A locked Debian package; `path` is relative to the archive."""

    name: str
    version: str
    sha256: str
    path: str


class Wheel(Struct, frozen=True):
    """A locked Python wheel."""

    name: str
    version: str
    sha256: str


class Sources(Struct, frozen=True):
    """All inputs of an image except the folders of source code, which change with every commit.

    `more` and `more_wheels` are the packages and wheels that the builder image adds.
    """

    source: Path
    recipe: PodRecipe
    debs: tuple[Deb, ...]
    wheels: tuple[Wheel, ...]
    more: tuple[Deb, ...] = ()
    more_wheels: tuple[Wheel, ...] = ()
    version: str = __version__

    @property
    def files(self) -> file_tree.Tree:
        """The files of `images/step/files`, which are copied into the image."""
        return file_tree.of_folder(self.source / STEP / FILES)

    @property
    def every(self) -> tuple[Deb, ...]:
        """All locked Debian packages of the image, with those that the builder image adds."""
        return self.debs + self.more

    @property
    def every_wheel(self) -> tuple[Wheel, ...]:
        """All locked Python wheels of the image, with those that the builder image adds."""
        return self.wheels + self.more_wheels

    @property
    def digest(self) -> str:
        """Digest of the recipe with its locks and files: equal digests and equal code give equal images."""
        return digest([self.recipe, self.every, self.every_wheel, self.files])


def read(source: Path, *, builder: bool = False) -> Sources:
    """Return recipe and locks of the step image, or with `builder` of the builder image.

    Raises BuildError with the file at fault.
    """
    recipe = read_recipe(source)
    debs = _debs(source, STEP, RELOCK)
    wheels = _wheels(source, STEP, RELOCK)
    if not builder:
        return Sources(source, recipe, debs, wheels)
    added, more = read_more(source), _debs(source, BUILDER, RELOCK_BUILDER)
    more_wheels = _wheels(source, BUILDER, RELOCK_BUILDER) if added.group else ()
    for lock, below, above in ((PACKAGES, debs, more), (WHEELS, wheels, more_wheels)):
        if twice := sorted({entry.name for entry in below} & {entry.name for entry in above}):
            raise BuildError(f"{BUILDER / lock}: the step image has {', '.join(twice)} already", hint=RELOCK_BUILDER)
    return Sources(source, added.on(recipe), debs, wheels, more, more_wheels)


def read_recipe(source: Path) -> PodRecipe:
    """Return the recipe of the step image without its locks, which can be made from it. Raises BuildError."""
    return _recipe(source, STEP / RECIPE, PodRecipe)


def read_more(source: Path) -> More:
    """Return the recipe of the builder image without its locks, which can be made from it. Raises BuildError."""
    return _recipe(source, BUILDER / RECIPE, More)


def _recipe(source: Path, name: Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(yaml.safe_load(_text(source / name)), kind)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BuildError(f"{name}: {error}") from error


def _debs(source: Path, folder: Path, relock: str) -> tuple[Deb, ...]:
    return tuple(Deb(*groups) for groups in _lines(source, folder / PACKAGES, _DEB, relock))


def _wheels(source: Path, folder: Path, relock: str) -> tuple[Wheel, ...]:
    """Return the wheels of a lock. Raises BuildError if uv.lock does not have them."""
    wheels = tuple(Wheel(*groups) for groups in _lines(source, folder / WHEELS, _WHEEL, relock))
    locked = _text(source / "uv.lock")
    if stale := [f"{wheel.name}=={wheel.version}" for wheel in wheels if wheel.sha256 not in locked]:
        raise BuildError(f"{folder / WHEELS} has {', '.join(stale)}, uv.lock has other versions", hint=relock)
    return wheels


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise BuildError(
            f"{path}: {error.strerror}", hint="images of steps are built from a checkout of bringup: name it with --tree"
        ) from error


def _lines(source: Path, name: Path, pattern: re.Pattern[str], relock: str) -> list[tuple[str, ...]]:
    pins = []
    for number, line in enumerate(_text(source / name).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        matched = pattern.fullmatch(line.strip())
        if matched is None:
            raise BuildError(f"{name} line {number}: {line.strip()!r} is no pin", hint=relock)
        pins.append(matched.groups())
    return pins


def application_tree(application: SourceCopy, source: Path) -> file_tree.Tree:
    """Return the folders of `source` that are copied into the image, as a tree. Raises BuildError if one is missing."""
    whole: file_tree.Tree = {}
    for name in application.copy:
        if not (source / name).is_dir():
            raise BuildError(f"{source} has no folder {name}", hint="name a checkout of bringup with --tree")
        for path, entry in file_tree.of_folder(source / name).items():
            parts = PurePosixPath(path).parts
            if not any(fnmatchcase(part, pattern) for part in parts for pattern in application.leave_out):
                whole[f"{application.folder}/{name}/{path}"] = entry
    return whole
