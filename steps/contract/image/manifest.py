"""`manifest.json` of a built image: everything about it, equal for equal inputs (no times, no host).

That of a published version also says where its recipe came from and how each test ended; that of a built one cannot know it yet,
and two commits may mean the same bytes. How long tests took and what they said is in `tests.json` beside it.
"""

from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical
from steps.contract.image.testing import Outcome

SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.json.sig"
"""Made by `ssh-keygen -Y sign` over the manifest, namespace NAMESPACE."""
NAMESPACE: Final = "bringup-image"
ROOT, KERNEL, INITRD, OCI = "root.squashfs", "vmlinuz", "initrd.img", "root.oci.tar"
PARTS: Final = (ROOT, KERNEL, INITRD, OCI)
"""The files of an image beside its manifest."""


class Part(Struct, frozen=True, kw_only=True):
    """One file: digest `sha256:…` and size in bytes."""

    name: str
    digest: str
    size: int


class LayerOf(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One layer as it was built: key, digest of its content listing, bytes and files that it adds."""

    name: str
    key: str
    digest: str
    size: int
    files: int


class PackageOf(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An installed package, with the layer that brought it."""

    name: str
    version: str
    architecture: str
    sha256: str
    layer: str


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One image. `recipe` is the digest of the resolved recipe, `tools` versions of the programs that packed it, `tests` names of
    the tests that it must pass. Once published: `origin`, where the recipe came from (a commit, bringup's version), and
    `outcomes`, how each test ended, by task and name."""

    name: str
    key: str
    recipe: str
    distribution: str
    release: str
    architecture: str
    epoch: int
    kernel: str
    kernel_arguments: tuple[str, ...]
    parts: tuple[Part, ...]
    layers: tuple[LayerOf, ...]
    packages: tuple[PackageOf, ...]
    tools: dict[str, str] = {}
    tests: tuple[str, ...] = ()
    origin: str = ""
    outcomes: dict[str, dict[str, Outcome]] = {}
    schema: int = SCHEMA

    def part(self, name: str) -> Part | None:
        """The file of a name."""
        return next((one for one in self.parts if one.name == name), None)

    def is_same(self, other: "Manifest") -> bool:
        """Whether both are of the same key and the same bytes, which makes one image of them whatever else they say."""
        return (self.name, self.key, sorted(self.parts, key=_name)) == (other.name, other.key, sorted(other.parts, key=_name))


def _name(part: Part) -> str:
    return part.name


class ManifestError(ValueError):
    """The file is no manifest of this version; the message says why."""


def encode(manifest: Manifest) -> bytes:
    """The bytes of `manifest.json`."""
    return canonical(manifest) + b"\n"


def decode(data: bytes) -> Manifest:
    """Read a manifest. Raises ManifestError."""
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except msgspec.MsgspecError as error:
        raise ManifestError(f"{MANIFEST}: {error}") from error
    if found.schema != SCHEMA:
        raise ManifestError(f"{MANIFEST} has schema {found.schema}, this version reads {SCHEMA}")
    return found
