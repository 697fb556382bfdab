"""What lets a booted node run its tests and report: files and services of `images/boot`, part of every image's lowest layer."""

from hashlib import sha256
from typing import Annotated

from pydantic import Field

from steps.contract.image.recipe import PlacedFile, Service
from workflows.images.nodes import shipped
from workflows.spec.fields import Listed, Section
from workflows.spec.loading import load_as
from workflows.spec.others import RelativePath
from workflows.spec.recipe_layers import ImagePath, Mode, UnitName


class BootFile(Section):
    """One file: where it goes, and where it lies beside `files.yaml`."""

    path: ImagePath
    source: RelativePath
    mode: Mode = "0644"


class BootFiles(Section):
    """`images/boot/files.yaml`."""

    files: Annotated[tuple[BootFile, ...], Listed, Field(min_length=1)]
    services: Annotated[tuple[UnitName, ...], Listed, Field(min_length=1)]


def files(contents: dict[str, bytes]) -> list[PlacedFile]:
    """The files; their bytes go into `contents`."""
    placed = []
    for one in _read().files:
        data = (shipped.BOOT / one.source).read_bytes()
        key = sha256(data).hexdigest()
        contents[key] = data
        placed.append(PlacedFile(path=one.path, sha256=key, mode=int(one.mode, 8)))
    return placed


def services() -> list[Service]:
    """The units that start them."""
    return [Service(unit=unit) for unit in _read().services]


def _read() -> BootFiles:
    return load_as(BootFiles, shipped.BOOT_FILES)
