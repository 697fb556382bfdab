"""The step image: three layers (Debian, wheels, our code), each cached by the content of what went in, and the archive of them.

The builder image has one more above Debian's, with its own packages, and one above the wheels: nodes that have the step image lack
those and ours.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct

from steps.contract import oci as archives
from steps.contract.canonical import digest, digest_bytes
from steps.contract.oci import Blob
from workflows.images import application, bytecode, debs, fetch, oci, recipe, sbom, tree, wheels
from workflows.images.cache import Cache
from workflows.images.recipe import Wheel
from workflows.images.tree import Tree

STANDARD_LIBRARY = ("usr/lib/python3", "usr/lib/python{python}")
RECIPE_LABEL = "io.bringup.recipe"


class Built(Struct, frozen=True):
    """An image that was written."""

    archive: Path
    bill: Path
    name: str
    digest: str
    """Of the manifest; it also depends on the zlib that packed the layers."""
    image_id: str
    """Of the configuration, which names the layers unpacked: equal on any machine."""
    size: int
    """Bytes of the archive."""


class Step:
    """One build from one source tree."""

    def __init__(self, source: Path, cache: Cache, say: Callable[[str], None], *, builder: bool = False) -> None:
        self._sources, self._cache, self._say = recipe.read(source, builder=builder), cache, say
        self._code = digest([path.read_text() for path in sorted(Path(__file__).parent.glob("*.py"))])
        wanted = self._sources.recipe
        settings = (wanted.debian, wanted.folders, wanted.epoch, wanted.bytecode, wanted.wheels.python)
        self._base = self._key("debian", settings, self._sources.debs, self._sources.files)

    def write(self, out: Path, name: str = "") -> Built:
        """Write the archive and, beside it, the bill of materials. `name` is a reference; else the recipe's with our version."""
        sources, name = self._sources, name or f"{self._sources.recipe.name}:{self._sources.version}"
        with self._cache.locked():
            fetch.missing(sources, self._cache)
            code = application.of(sources.recipe.application, sources.source)
            bill = sbom.of(sources, digest(code))
            layers = [self._debian(), *self._more(), self._wheels(), *self._more_wheels(), self._application(code, bill)]
            settings = self._settings([blob for blob, _ in layers])
            manifest = oci.write_archive(out, settings, layers, name, sources.recipe.epoch)
        beside = out.with_name(f"{out.name}.cdx.json")
        beside.write_bytes(bill)
        return Built(out, beside, name, manifest, digest_bytes(settings), out.stat().st_size)

    def _key(self, *inputs: object) -> str:
        return digest([self._code, *inputs]).removeprefix("sha256:")

    def _layer(self, key: str, what: str, made_by: str, make: Callable[[], Tree]) -> tuple[Blob, Path]:
        if kept := self._cache.layer(key):
            return kept
        self._say(f"layer {what}")
        blob = oci.write_layer(make(), self._cache.layer_path(key), self._sources.recipe.epoch, made_by)
        return self._cache.add_layer(key, blob)

    def _debian(self) -> tuple[Blob, Path]:
        return self._layer(self._base, "debian", f"bringup image step: {recipe.PACKAGES}", self._debian_tree)

    def _debian_tree(self) -> Tree:
        wanted = self._sources.recipe
        folders = {one.path: tree.folder(int(one.mode, 8), one.owner) for one in wanted.folders}
        whole = tree.merged([debs.of(self._sources.debs, wanted.debian, self._cache), self._sources.files, folders])
        below = [path.format(python=wanted.wheels.python) for path in STANDARD_LIBRARY]
        return whole | self._compiled(whole, below)

    def _more(self) -> list[tuple[Blob, Path]]:
        """The builder image's own packages."""
        sources = self._sources

        def make() -> Tree:
            return debs.of(sources.more, sources.recipe.debian, self._cache, sources.debs)

        key, made_by = self._key("more", self._base, sources.more), f"bringup image step: {recipe.BUILDER / recipe.PACKAGES}"
        return [self._layer(key, "builder", made_by, make)] if sources.more else []

    def _wheels(self) -> tuple[Blob, Path]:
        key = self._key("wheels", self._base, self._sources.recipe.wheels, self._sources.wheels)
        return self._layer(key, "wheels", f"bringup image step: {recipe.WHEELS}", partial(self._unpacked, self._sources.wheels))

    def _more_wheels(self) -> list[tuple[Blob, Path]]:
        """The builder image's own wheels."""
        more = self._sources.more_wheels
        key, made_by = self._key("wheels", self._base, self._sources.recipe.wheels, more), recipe.BUILDER / recipe.WHEELS
        return [self._layer(key, "wheels", f"bringup image step: {made_by}", partial(self._unpacked, more))] if more else []

    def _unpacked(self, chosen: tuple[Wheel, ...]) -> Tree:
        folder = self._sources.recipe.wheels.folder
        whole = wheels.of(chosen, folder, self._cache)
        return whole | self._compiled(whole, [folder])

    def _application(self, code: Tree, bill: bytes) -> tuple[Blob, Path]:
        wanted = self._sources.recipe.application
        below = [f"{wanted.folder}/{name}" for name in wanted.bytecode]

        def make() -> Tree:
            return code | self._compiled(code, below) | {sbom.PLACE: tree.file(bill)}

        made_by = f"bringup image step: {', '.join(wanted.copy)}"
        key = self._key("application", self._base, below, digest(code), digest_bytes(bill))
        return self._layer(key, "application", made_by, make)

    def _compiled(self, whole: Tree, below: list[str]) -> Tree:
        """The bytecode of a tree, or nothing where the recipe wants none."""
        if not self._sources.recipe.bytecode:
            return {}
        with self._cache.scratch() as folder:
            return bytecode.of(whole, below, self._root(), self._sources.recipe.wheels.python, folder)

    def _root(self) -> Path:
        """The unpacked packages, for their interpreter."""
        root = self._cache.root(self._base)
        if not root.exists():
            with self._cache.scratch() as folder:
                tree.unpack(debs.of(self._sources.debs, self._sources.recipe.debian, self._cache), folder / "root")
                (folder / "root").rename(root)
        return root

    def _settings(self, layers: list[Blob]) -> bytes:
        wanted = self._sources.recipe
        labels = {
            "org.opencontainers.image.title": wanted.title,
            "org.opencontainers.image.version": self._sources.version,
            RECIPE_LABEL: self._sources.digest,
        }
        settings = {
            "User": wanted.config.user,
            "Env": [f"{name}={value}" for name, value in wanted.config.env.items()],
            "Entrypoint": wanted.config.entrypoint,
            "WorkingDir": wanted.config.workdir,
            "Labels": labels,
        }
        return archives.config(settings, layers, wanted.architecture, wanted.created)
