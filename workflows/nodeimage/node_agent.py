"""Node agent: files and services of `images/boot` by which a booted node runs its tests and reports, part of every lowest layer."""

from hashlib import sha256
from typing import Annotated

from pydantic import Field

from steps.nodeimage.contract.resolved_recipe import LayerService, PlacedFile
from workflows.nodeimage import recipe_files
from workflows.nodeimage.recipe_spec import ImagePath, Mode, UnitName
from workflows.spec.fields import Listed, Section
from workflows.spec.loading import load_as
from workflows.spec.pipeline_specs import RelativePath


class BootFile(Section):
    """A file of the node agent: its path in the image, and its place beside `files.yaml`."""

    path: ImagePath
    source: RelativePath
    mode: Mode = "0644"


class BootFiles(Section):
    """Content of `images/boot/files.yaml`."""

    files: Annotated[tuple[BootFile, ...], Listed, Field(min_length=1)]
    services: Annotated[tuple[UnitName, ...], Listed, Field(min_length=1)]


def files(contents: dict[str, bytes]) -> list[PlacedFile]:
    """Return the files of the agent; their bytes are added to `contents`."""
    placed = []
    for one in _read().files:
        data = (recipe_files.BOOT / one.source).read_bytes()
        key = sha256(data).hexdigest()
        contents[key] = data
        placed.append(PlacedFile(path=one.path, sha256=key, mode=int(one.mode, 8)))
    return placed


def services() -> list[LayerService]:
    """Return the units that start the agent."""
    return [LayerService(unit=unit) for unit in _read().services]


def _read() -> BootFiles:
    return load_as(BootFiles, recipe_files.BOOT_FILES)
