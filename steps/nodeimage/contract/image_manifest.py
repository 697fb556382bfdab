"""`manifest.json` of a node image: a full description without times and hosts, so that equal inputs give equal bytes.

The manifest of a published version also says where its recipe came from and how each test ended. That of a built image cannot,
because two commits may give the same bytes. Durations and output of tests are in `tests.json` beside it.
"""

from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.contract.release_layout import ReleaseFile
from steps.nodeimage.contract.image_tests import ImageTestOutcome

SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.json.sig"
"""Name of the signature file, made by `ssh-keygen -Y sign` over the manifest in namespace NAMESPACE."""
NAMESPACE: Final = "bringup-image"
ROOT, KERNEL, INITRD, OCI = "root.squashfs", "vmlinuz", "initrd.img", "root.oci.tar"
PARTS: Final = (ROOT, KERNEL, INITRD, OCI)
"""Names of the files of an image beside its manifest."""


class ImageFile(ReleaseFile, frozen=True, kw_only=True):
    """One file of an image, such as the squashfs: its name, digest `sha256:…` and size in bytes."""


class LayerOf(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One layer of a built image: its key, the digest of its content list, and the bytes and entries that it adds."""

    name: str
    key: str
    digest: str
    size: int
    files: int


class PackageOf(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Installed package in an image's manifest, with the layer that brought it."""

    name: str
    version: str
    architecture: str
    sha256: str
    layer: str


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of an image's `manifest.json`.

    `recipe` is the digest of the resolved recipe, `tools` the versions of the programs that packed it, `tests` the names of the
    tests that it must pass. A published version also has `origin`, where the recipe came from (a commit, the version of bringup),
    and `outcomes`, the outcome of each test by task and name.
    """

    name: str
    key: str
    recipe: str
    distribution: str
    release: str
    architecture: str
    epoch: int
    kernel: str
    kernel_arguments: tuple[str, ...]
    parts: tuple[ImageFile, ...]
    layers: tuple[LayerOf, ...]
    packages: tuple[PackageOf, ...]
    tools: dict[str, str] = {}
    tests: tuple[str, ...] = ()
    origin: str = ""
    outcomes: dict[str, dict[str, ImageTestOutcome]] = {}
    schema: int = SCHEMA

    def part(self, name: str) -> ImageFile | None:
        """Return the image file of this name; None if the manifest does not list it."""
        return next((part for part in self.parts if part.name == name), None)

    def is_same(self, other: "Manifest") -> bool:
        """Return True if both manifests describe one image: the name, the key and all image files are equal."""
        mine, theirs = (sorted(manifest.parts, key=attrgetter("name")) for manifest in (self, other))
        return (self.name, self.key, mine) == (other.name, other.key, theirs)


class ManifestError(ValueError):
    """Error: a file is no manifest that this version can read; the message says why."""


def encode(manifest: Manifest) -> bytes:
    """Return the bytes of `manifest.json`."""
    return canonical(manifest) + b"\n"


def decode(data: bytes) -> Manifest:
    """Return the manifest in the bytes of `manifest.json`. Raises ManifestError."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except UNREADABLE_JSON as error:
        raise ManifestError(f"{MANIFEST}: {error}") from error
    if manifest.schema != SCHEMA:
        raise ManifestError(f"{MANIFEST} has schema {manifest.schema}, this version reads {SCHEMA}")
    return manifest
