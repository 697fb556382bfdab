"""Build the step image as an OCI archive of three layers (Debian, wheels, our code), each cached by its inputs.

The builder image has one more layer above Debian's, with its own packages, and one above the wheels: nodes that have the step image
fetch only those and our code.
"""

import gzip
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, cast

from msgspec import Struct

from steps.contract import oci
from steps.contract.canonical import digest, digest_bytes
from steps.contract.oci import Blob, Digesting
from workflows.podimage import bytecode, deb_unpacking, downloads, file_tree, pod_recipe, sbom, wheels
from workflows.podimage.downloads import Cache
from workflows.podimage.file_tree import Tree
from workflows.podimage.pod_recipe import Wheel

STANDARD_LIBRARY = ("usr/lib/python3", "usr/lib/python{python}")
RECIPE_LABEL = "io.bringup.recipe"


class BuiltImage(Struct, frozen=True):
    """The result of a build: paths of the OCI archive and its bill of materials, name and digests of the image."""

    archive: Path
    bill: Path
    name: str
    digest: str
    """Digest of the manifest; it also depends on the zlib that packed the layers."""
    image_id: str
    """Digest of the configuration, which names the unpacked layers: equal on any machine."""
    size: int
    """Bytes of the archive."""


class StepImageBuild:
    """A build of the step image, or of the builder image, from one source tree."""

    def __init__(self, source: Path, cache: Cache, say: Callable[[str], None], *, builder: bool = False) -> None:
        self._sources, self._cache, self._say = pod_recipe.read(source, builder=builder), cache, say
        self._code = digest([path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))])
        recipe = self._sources.recipe
        settings = (recipe.debian, recipe.folders, recipe.epoch, recipe.bytecode, recipe.wheels.python)
        self._base = self._key("debian", settings, self._sources.debs, self._sources.files)

    def write(self, out: Path, name: str = "") -> BuiltImage:
        """Build the image; write its archive to `out` and its bill of materials beside that.

        `name` is an image reference; default: the recipe's name with bringup's version as tag.
        """
        sources, name = self._sources, name or f"{self._sources.recipe.name}:{self._sources.version}"
        with self._cache.locked():
            downloads.fetch_missing(sources, self._cache)
            code = pod_recipe.application_tree(sources.recipe.application, sources.source)
            bill = sbom.build_sbom(sources, digest(code))
            layers = [self._layer(self._base, "debian", pod_recipe.PACKAGES, self._debian_tree)]
            if sources.more:
                key, lock = self._key("more", self._base, sources.more), f"{pod_recipe.BUILDER / pod_recipe.PACKAGES}"
                layers.append(self._layer(key, "builder", lock, self._more_tree))
            layers.append(self._wheels(sources.wheels, pod_recipe.WHEELS))
            if sources.more_wheels:
                layers.append(self._wheels(sources.more_wheels, f"{pod_recipe.BUILDER / pod_recipe.WHEELS}"))
            layers.append(self._application(code, bill))
            settings = self._settings([blob for blob, _ in layers])
            manifest = write_archive(out, settings, layers, name, sources.recipe.epoch)
        beside = out.with_name(f"{out.name}.cdx.json")
        beside.write_bytes(bill)
        return BuiltImage(out, beside, name, manifest, digest_bytes(settings), out.stat().st_size)

    def _key(self, *inputs: object) -> str:
        return digest([self._code, *inputs]).removeprefix("sha256:")

    def _layer(self, key: str, what: str, source: str, make: Callable[[], Tree]) -> tuple[Blob, Path]:
        if kept := self._cache.layer(key):
            return kept
        self._say(f"layer {what}")
        made_by = f"bringup image step: {source}"
        blob = write_layer(make(), self._cache.layer_path(key), self._sources.recipe.epoch, made_by)
        return self._cache.add_layer(key, blob)

    def _debian_tree(self) -> Tree:
        recipe = self._sources.recipe
        folders = {folder.path: file_tree.folder(int(folder.mode, 8), folder.owner) for folder in recipe.folders}
        debs = deb_unpacking.unpack_debs(self._sources.debs, recipe.debian, self._cache)
        whole = debs | self._sources.files | folders
        below = [path.format(python=recipe.wheels.python) for path in STANDARD_LIBRARY]
        return whole | self._compiled(whole, below)

    def _more_tree(self) -> Tree:
        sources = self._sources
        return deb_unpacking.unpack_debs(sources.more, sources.recipe.debian, self._cache, sources.debs)

    def _wheels(self, chosen: tuple[Wheel, ...], lock: str) -> tuple[Blob, Path]:
        key = self._key("wheels", self._base, self._sources.recipe.wheels, chosen)
        return self._layer(key, "wheels", lock, partial(self._unpacked, chosen))

    def _unpacked(self, chosen: tuple[Wheel, ...]) -> Tree:
        folder = self._sources.recipe.wheels.folder
        whole = wheels.unpack_wheels(chosen, folder, self._cache)
        return whole | self._compiled(whole, [folder])

    def _application(self, code: Tree, bill: bytes) -> tuple[Blob, Path]:
        application = self._sources.recipe.application
        below = [f"{application.folder}/{name}" for name in application.bytecode]

        def make() -> Tree:
            return code | self._compiled(code, below) | {sbom.PLACE: file_tree.file(bill)}

        key = self._key("application", self._base, below, digest(code), digest_bytes(bill))
        return self._layer(key, "application", ", ".join(application.copy), make)

    def _compiled(self, whole: Tree, below: list[str]) -> Tree:
        """Return the bytecode of a tree's modules below some paths; empty if the recipe wants none."""
        if not self._sources.recipe.bytecode:
            return {}
        with self._cache.scratch() as folder:
            return bytecode.compile_tree(whole, below, self._root(), self._sources.recipe.wheels.python, folder)

    def _root(self) -> Path:
        """Return a folder with the unpacked Debian packages, from which the image's interpreter runs."""
        root = self._cache.root(self._base)
        if not root.exists():
            with self._cache.scratch() as folder:
                debs = deb_unpacking.unpack_debs(self._sources.debs, self._sources.recipe.debian, self._cache)
                file_tree.unpack(debs, folder / "root")
                (folder / "root").rename(root)
        return root

    def _settings(self, layers: list[Blob]) -> bytes:
        recipe = self._sources.recipe
        labels = {
            "org.opencontainers.image.title": recipe.title,
            "org.opencontainers.image.version": self._sources.version,
            RECIPE_LABEL: self._sources.digest,
        }
        settings = {
            "User": recipe.config.user,
            "Env": [f"{name}={value}" for name, value in recipe.config.env.items()],
            "Entrypoint": recipe.config.entrypoint,
            "WorkingDir": recipe.config.workdir,
            "Labels": labels,
        }
        return oci.config(settings, layers, recipe.architecture, recipe.created)


GZIP_LEVEL = 6


def write_layer(content: Mapping[str, file_tree.ImageEntry], path: Path, epoch: int, made_by: str) -> Blob:
    """Write a tree as a gzip layer, with neither name nor time in its header; return its digests and size."""
    with path.open("wb") as file:
        packed = Digesting(file)
        sink = cast(IO[bytes], packed)
        with gzip.GzipFile(filename="", mode="wb", compresslevel=GZIP_LEVEL, fileobj=sink, mtime=0) as squeezed:
            plain = Digesting(cast(IO[bytes], squeezed))
            file_tree.write_tar(content, cast(IO[bytes], plain), epoch)
    return Blob(packed.digest, packed.size, plain.digest, made_by)


def write_archive(out: Path, settings: bytes, layers: Sequence[tuple[Blob, Path]], name: str, epoch: int) -> str:
    """Write layers and settings as an OCI archive, atomically, and return the digest of its manifest.

    `name` is a full image reference with a tag.
    """
    places = {blob.digest: path for blob, path in layers}
    unfinished = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with unfinished.open("wb") as file:
            blobs = [blob for blob, _ in layers]
            digest = oci.write(file, settings, blobs, lambda blob: places[blob.digest].open("rb"), name=name, epoch=epoch)
        unfinished.replace(out)
    finally:
        unfinished.unlink(missing_ok=True)
    return digest
