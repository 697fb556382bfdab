"""The recipe of the step image and its two locks, read from `images/step` and refused as a whole where they are wrong."""

import datetime
import re
from pathlib import Path

import msgspec
import yaml
from msgspec import Struct

from steps import __version__
from steps.contract.canonical import digest
from workflows.images import tree
from workflows.images.errors import BuildError

FOLDER = Path("images/step")
RECIPE, PACKAGES, WHEELS, FILES = "recipe.yaml", "packages.lock", "wheels.lock", "files"
RELOCK = "run `bringup image step lock` and review what changed"

_DEB = re.compile(r"([a-z0-9][a-z0-9+.-]+)=(\S+) ([0-9a-f]{64}) (\S+\.deb)")
_WHEEL = re.compile(r"([a-z0-9][a-z0-9-]*)==(\S+) --hash=sha256:([0-9a-f]{64})")


class Debian(Struct, frozen=True, forbid_unknown_fields=True):
    """Where packages come from, which are wanted, and which of their dependencies are left out."""

    archive: str
    repositories: tuple[str, ...]
    keyring: str
    packages: tuple[str, ...]
    without: tuple[str, ...] = ()
    leave_out: tuple[str, ...] = ()


class Folder(Struct, frozen=True, forbid_unknown_fields=True):
    """A folder that no package brings."""

    path: str
    mode: str = "755"
    owner: int = 0


class Wheels(Struct, frozen=True, forbid_unknown_fields=True):
    """Which group of uv.lock, for which interpreter, and where it lies in the image."""

    group: str
    python: str
    platforms: tuple[str, ...]
    folder: str


class Application(Struct, frozen=True, forbid_unknown_fields=True):
    """Which folders of the source tree are copied, where to, without which names, and which of them are compiled."""

    folder: str
    copy: tuple[str, ...]
    leave_out: tuple[str, ...]
    bytecode: tuple[str, ...] = ()


class Config(Struct, frozen=True, forbid_unknown_fields=True):
    """How a container of the image starts."""

    user: str
    entrypoint: tuple[str, ...]
    workdir: str
    env: dict[str, str]


class Recipe(Struct, frozen=True, forbid_unknown_fields=True):
    """All that is decided by hand; see the comments of `images/step/recipe.yaml`."""

    name: str
    title: str
    architecture: str
    epoch: int
    debian: Debian
    folders: tuple[Folder, ...]
    wheels: Wheels
    application: Application
    config: Config
    bytecode: bool = True

    @property
    def created(self) -> str:
        """The time of the image, RFC 3339."""
        return datetime.datetime.fromtimestamp(self.epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Deb(Struct, frozen=True):
    """One Debian package as locked; `path` is relative to the archive."""

    name: str
    version: str
    sha256: str
    path: str


class Wheel(Struct, frozen=True):
    """One Python wheel as locked."""

    name: str
    version: str
    sha256: str


class Sources(Struct, frozen=True):
    """Everything that goes into the image but `steps` and `playbooks`, which change with every commit."""

    source: Path
    recipe: Recipe
    debs: tuple[Deb, ...]
    wheels: tuple[Wheel, ...]
    version: str = __version__

    @property
    def folder(self) -> Path:
        """Where the recipe lies."""
        return self.source / FOLDER

    @property
    def digest(self) -> str:
        """Of the recipe with its locks and files: equal digests and equal code give equal images."""
        files = tree.of_folder(self.folder / FILES)
        return digest([self.recipe, self.debs, self.wheels, files])


def read(source: Path) -> Sources:
    """Recipe and locks of a source tree. Raises BuildError with file and line of what is wrong."""
    recipe = read_recipe(source)
    folder = source / FOLDER
    debs = tuple(Deb(*groups) for groups in _lines(folder / PACKAGES, _DEB))
    wheels = tuple(Wheel(*groups) for groups in _lines(folder / WHEELS, _WHEEL))
    locked = _text(source / "uv.lock")
    if stale := [f"{wheel.name}=={wheel.version}" for wheel in wheels if wheel.sha256 not in locked]:
        raise BuildError(f"{FOLDER / WHEELS} has {', '.join(stale)}, uv.lock has other versions", hint=RELOCK)
    return Sources(source, recipe, debs, wheels)


def read_recipe(source: Path) -> Recipe:
    """The recipe alone, for who makes the locks."""
    path = source / FOLDER / RECIPE
    try:
        return msgspec.convert(yaml.safe_load(_text(path)), Recipe)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise BuildError(f"{FOLDER / RECIPE}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError as error:
        raise BuildError(
            f"{path}: {error.strerror}", hint="the step image is built from a checkout of bringup: name it with --tree"
        ) from error


def _lines(path: Path, pattern: re.Pattern[str]) -> list[tuple[str, ...]]:
    found = []
    for number, line in enumerate(_text(path).splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        matched = pattern.fullmatch(line.strip())
        if matched is None:
            raise BuildError(f"{FOLDER / path.name} line {number}: {line.strip()!r} is no pin", hint=RELOCK)
        found.append(matched.groups())
    return found
