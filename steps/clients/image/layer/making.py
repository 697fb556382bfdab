"""Makes one layer that the cache has not: gathers what it needs, builds it in a namespace, and says what it became."""

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.clients.image import removing
from steps.clients.image.contained import identities, namespace
from steps.clients.image.layer import archive, build_secrets, building, canaries
from steps.clients.image.layer.content import Content
from steps.contract.image import keys
from steps.contract.image.recipe import Layer, Recipe
from steps.contract.stages.image_layers import Built
from steps.errors import BadTask

BUILD, FINISH = f"{building.__name__}:build", f"{building.__name__}:finish"
TREE, LIST = "tree", "content.list"


class Making(Struct, frozen=True):
    """One layer to build."""

    images: Path
    recipe: Recipe
    files: Mapping[str, bytes]
    name: str
    secrets: Path
    say: Callable[[str], None]
    stack: tuple[Path, ...]
    """Folders of the layers below, uppermost first."""

    @property
    def layer(self) -> Layer:
        """The layer as the recipe has it."""
        return self.recipe.layer(self.name)

    @property
    def below(self) -> list[str]:
        """Names of the layers under this one, lowest first."""
        return list(self.recipe.names[: self.recipe.names.index(self.name)])

    def redacted(self, work: building.Work) -> Callable[[str], None]:
        """Says lines without the secrets in them."""
        return lambda line: self.say(canaries.redact(line, build_secrets.read(work.secrets)))

    @property
    def key(self) -> str:
        """Its place in the cache."""
        return keys.layers(self.recipe)[self.name]


class Failed(Exception):
    """The layer could not be built; nothing of it is kept."""

    def __init__(self, built: Built) -> None:
        super().__init__(built.failed)
        self.built = built


class Made(Struct, frozen=True, kw_only=True):
    """What the new layer is: its content, what its root has installed, and how long it took."""

    content: Content
    installed: tuple[str, ...]
    seconds: float


def make(layer: Making, work: building.Work, folder: Path) -> Made:
    """Fill the folder of a new entry. Raises Failed."""
    began = time.monotonic()
    tree = folder / TREE
    tree.mkdir(mode=0o755)
    with _archive_held(Path(work.archive)):
        outcome = namespace.call(
            layer.stack, BUILD, work, building.Outcome, upper=tree, seconds=timeouts.IMAGE_LAYER, say=layer.redacted(work)
        )
    if outcome.failed:
        output = canaries.redact(outcome.output, build_secrets.read(work.secrets))
        raise Failed(Built(key=layer.key, seconds=time.monotonic() - began, failed=outcome.failed, output=output))
    removing.remove(folder / "work")
    finish = building.Finish(
        name=layer.name,
        tree=str(tree.absolute()),
        listing=str((folder / LIST).absolute()),
        lowest=not layer.stack,
        epoch=layer.recipe.epoch,
        secrets=build_secrets.read(work.secrets),
    )
    finished = namespace.call(layer.stack, FINISH, finish, building.Finished, seconds=timeouts.IMAGE_READ, say=layer.say)
    seconds = round(time.monotonic() - began, 3)
    if finished.secrets_found:
        raise Failed(Built(key=layer.key, seconds=seconds, secrets_found=finished.secrets_found))
    return Made(content=finished.content, installed=outcome.installed, seconds=seconds)


@contextlib.contextmanager
def _archive_held(folder: Path) -> Iterator[None]:
    """A shared lock on the archive, so that no collector takes a package away meanwhile."""
    if not folder.is_dir():  # a layer without packages needs none
        yield
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def gather(layer: Making) -> building.Work:
    """What the builder needs, all of it at hand before anything is started: without namespaces none of what was begun could be
    removed either."""
    identities.choose()
    folder = layer.images / archive.FOLDER
    missing = [one for one in layer.layer.packages if not archive.path(layer.images, one.sha256).is_file()]
    if missing:
        raise BadTask(
            f"{len(missing)} packages of layer {layer.name} are not in {folder}, first {missing[0].name}={missing[0].version}",
            hint="run the image's lock stage, which fills the archive",
        )
    lacking = [file.path for file in layer.layer.files if file.sha256 and file.sha256 not in layer.files]
    if lacking:
        raise BadTask(f"layer {layer.name}: the bytes of {lacking[0]} did not come with the recipe", hint="render again")
    layers = [layer.recipe.layer(name) for name in (*layer.below, layer.name)]
    return building.Work(
        layer=layer.layer,
        archive=str(folder.absolute()),
        files={file.sha256: layer.files[file.sha256] for file in layer.layer.files if file.sha256},
        secrets=build_secrets.note(layer.secrets, _asked_for(layer.layer), layer.name),
        epoch=layer.recipe.epoch,
        expected=tuple(sorted(f"{one.name}={one.version}" for each in layers for one in each.packages)),
    )


def _asked_for(layer: Layer) -> list[str]:
    return sorted({name for command in layer.commands for name in command.secrets})
