"""Build of one layer that the cache lacks: gathers the inputs, builds in a namespace, and describes the result."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct

from steps import timeouts
from steps.errors import BadTask
from steps.nodeimage.containment import id_ranges, namespace
from steps.nodeimage.contract import build_keys
from steps.nodeimage.contract.resolved_recipe import Recipe, ResolvedLayer
from steps.nodeimage.layer import build_secrets, layer_steps, package_archive, secret_scan
from steps.nodeimage.layer.layer_content import LayerContent
from steps.nodeimage.store import store_entries
from steps.stages.image_layers.contract import Built

BUILD, FINISH = f"{layer_steps.__name__}:build", f"{layer_steps.__name__}:finish"
TREE, LIST = "tree", "content.list"


class LayerInputs(Struct, frozen=True):
    """Inputs of one layer's build: image store, recipe with its files (digest → bytes), the layer's name, the folder of secrets."""

    images: Path
    recipe: Recipe
    files: Mapping[str, bytes]
    name: str
    secrets: Path
    say: Callable[[str], None]
    stack: tuple[Path, ...]
    """Folders of the layers below, uppermost first."""

    @property
    def layer(self) -> ResolvedLayer:
        """Layer of the recipe that is to be built."""
        return self.recipe.layer(self.name)

    @property
    def below(self) -> list[str]:
        """Names of the layers below, lowest first."""
        return list(self.recipe.names[: self.recipe.names.index(self.name)])

    def redacted(self, work: layer_steps.LayerWork) -> Callable[[str], None]:
        """Return a function that passes lines to `say` with the secrets removed."""
        return lambda line: self.say(secret_scan.redact(line, build_secrets.read(work.secrets)))

    @property
    def key(self) -> str:
        """Key of the layer that is to be built, by which the cache knows it."""
        return build_keys.layers(self.recipe)[self.name]


class LayerFailed(Exception):
    """Error: the layer could not be built, or has a secret in it; `built` is the result to report, and nothing else is kept."""

    def __init__(self, built: Built) -> None:
        super().__init__(built.failed)
        self.built = built


class BuiltLayer(Struct, frozen=True, kw_only=True):
    """Newly built layer: its content, the packages installed in its root (`name=version`), and the seconds of the build."""

    content: LayerContent
    installed: tuple[str, ...]
    seconds: float


def make(layer: LayerInputs, work: layer_steps.LayerWork, folder: Path) -> BuiltLayer:
    """Build a layer in the folder of a new cache entry and return its description. Raises LayerFailed."""
    began = time.monotonic()
    tree = folder / TREE
    tree.mkdir(mode=0o755)
    with store_entries.hold_shared(Path(work.archive)):  # which a layer without packages does not need
        outcome = namespace.call(
            layer.stack, BUILD, work, layer_steps.LayerOutcome, upper=tree, seconds=timeouts.IMAGE_LAYER, say=layer.redacted(work)
        )
    if outcome.failed:
        output = secret_scan.redact(outcome.output, build_secrets.read(work.secrets))
        raise LayerFailed(Built(key=layer.key, seconds=time.monotonic() - began, failed=outcome.failed, output=output))
    namespace.remove_folder(folder / "work")
    finish = layer_steps.NormalizationWork(
        name=layer.name,
        tree=str(tree.absolute()),
        listing=str((folder / LIST).absolute()),
        lowest=not layer.stack,
        epoch=layer.recipe.epoch,
        secrets=build_secrets.read(work.secrets),
    )
    finished = namespace.call(layer.stack, FINISH, finish, layer_steps.Finished, seconds=timeouts.IMAGE_READ, say=layer.say)
    seconds = round(time.monotonic() - began, 3)
    if finished.secrets_found:
        raise LayerFailed(Built(key=layer.key, seconds=seconds, secrets_found=finished.secrets_found))
    return BuiltLayer(content=finished.content, installed=outcome.installed, seconds=seconds)


def gather(layer: LayerInputs) -> layer_steps.LayerWork:
    """Return the work order of a layer's build with all its inputs.

    Raises BadTask if a package, file, secret or namespace is missing.
    """
    id_ranges.choose()
    folder = layer.images / package_archive.FOLDER
    missing = [package for package in layer.layer.packages if not package_archive.path(layer.images, package.sha256).is_file()]
    if missing:
        raise BadTask(
            f"{len(missing)} packages of layer {layer.name} are not in {folder}, first {missing[0].name}={missing[0].version}",
            hint="run the image's lock stage, which fills the archive",
        )
    lacking = [file.path for file in layer.layer.files if file.sha256 and file.sha256 not in layer.files]
    if lacking:
        raise BadTask(f"layer {layer.name}: the bytes of {lacking[0]} did not come with the recipe", hint="render again")
    layers = [layer.recipe.layer(name) for name in (*layer.below, layer.name)]
    secrets = {name for command in layer.layer.commands for name in command.secrets}
    return layer_steps.LayerWork(
        layer=layer.layer,
        archive=str(folder.absolute()),
        files={file.sha256: layer.files[file.sha256] for file in layer.layer.files if file.sha256},
        secrets=build_secrets.note(layer.secrets, sorted(secrets), layer.name),
        epoch=layer.recipe.epoch,
        expected=tuple(sorted(f"{package.name}={package.version}" for each in layers for package in each.packages)),
    )
