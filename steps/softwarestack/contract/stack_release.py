"""A published version of a stack: its manifest, and how it is found after publishing.

The manifest of an assembled tree (STORE/stacks/trees/DIGEST) lists what a build made. That of a published version also says where
the stack came from, and how each test ended; neither makes a new version.
"""

import re
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON, canonical
from steps.contract.release_layout import ReleaseFile
from steps.softwarestack.contract.stack_input import PACKAGES

SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
TESTS: Final = "tests.json"
SIGNATURE: Final = "manifest.json.sig"
"""Name of the signature file, made by `ssh-keygen -Y sign` over the manifest in namespace NAMESPACE."""
NAMESPACE: Final = "bringup-stack"
PACKAGE_NAMESPACE: Final = "bringup-package"
"""Namespace of signatures over entries of the build cache."""
VIEW: Final = "view"
"""Name of the link in a version that leads to the view of its packages, and beginning of the name of the view's own folder."""
MODULES: Final = "modules"
"""Folder of the module files, in an assembled tree and in a version. It holds ordinary files only: no links."""
LARGEST_MANIFEST: Final = 64 << 20
RESERVED: Final = frozenset({PACKAGES, "nodes"})
"""Names that no stack may have, because a published root has folders of these names."""
_FOLDER: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,250}-[0-9a-z]{12}")
_STACK: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,99}")


class StackManifestError(ValueError):
    """Error: a file is no manifest of a stack that this version can read; the message says why."""


class PackageContent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Installed package in a manifest, in ROOT/packages/`folder`.

    `hash` is the lock's, `module` the full name of its module, `archive` the digest of its cache entry's archive. `content` is the
    digest of the list of its files (`package_files`), `files` their number, `size` their bytes.
    """

    hash: str
    name: str
    version: str
    folder: str
    module: str
    archive: str = ""
    content: str = ""
    files: int = 0
    size: int = 0
    target: str = ""
    """CPU target in a stack that is built for several."""

    @property
    def title(self) -> str:
        """Return the name and version of the package, such as `hdf5@1.14.3`."""
        return f"{self.name}@{self.version}"


class StackManifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a version's `manifest.json`, without times and hosts: equal inputs give equal bytes.

    `key` is that of the stack (`StackInput.key`), `lock` the digest of the lock file, `files` are the files of the version (module
    files) with their digests, `tests` the names of the tests that it must pass. A published version also has `origin`, where the
    spec came from, `revision`, the user's of the spec, and `outcomes` by name of test. `attested`: it has the statements
    provenance.json and test-result.json, which those of earlier releases of bringup have not.
    """

    name: str
    key: str
    backend: str
    release: str
    root: str
    packages: tuple[PackageContent, ...]
    files: tuple[ReleaseFile, ...]
    naming: str = ""
    target: str = ""
    targets: tuple[str, ...] = ()
    """CPU targets of a stack that is built for several; `target` is empty then."""
    builder: str = ""
    lock: str = ""
    view: str = ""
    """Folder among the packages with the view; empty without one."""
    tests: tuple[str, ...] = ()
    origin: str = ""
    revision: str = ""
    outcomes: dict[str, str] = {}
    attested: bool = False
    schema: int = SCHEMA

    @property
    def links(self) -> dict[str, str]:
        """Return the symbolic links of a version with their targets: the one to its view, if it has one."""
        return {VIEW: f"../../../{PACKAGES}/{self.view}"} if self.view else {}

    @property
    def built(self) -> tuple[PackageContent, ...]:
        """Return the packages that were built: all without the view, which is made of them."""
        return tuple(package for package in self.packages if package.folder != self.view)

    @property
    def by_folder(self) -> dict[str, PackageContent]:
        """Return the packages by the name of their folder."""
        return {package.folder: package for package in self.packages}

    @property
    def size(self) -> int:
        """Return the bytes of all module files and packages."""
        return sum(file.size for file in self.files) + sum(package.size for package in self.packages)

    def is_same(self, other: "StackManifest") -> bool:
        """Return True if users of both get the same: equal name, root, packages and module files."""
        return self._content == other._content

    @property
    def _content(self) -> tuple[object, ...]:
        packages = sorted((package.folder, package.content) for package in self.packages)
        return (self.name, self.root, packages, sorted(self.files, key=attrgetter("name")))


def encode_manifest(manifest: StackManifest) -> bytes:
    """Return the bytes of `manifest.json`."""
    return canonical(manifest)


def decode_manifest(data: bytes) -> StackManifest:
    """Return the manifest in the bytes of `manifest.json`. Raises StackManifestError, for names that lead elsewhere too."""
    if len(data) > LARGEST_MANIFEST:
        raise StackManifestError(f"{MANIFEST} has more than {LARGEST_MANIFEST >> 20} MiB")
    try:
        manifest = msgspec.json.decode(data, type=StackManifest)
    except UNREADABLE_JSON as error:
        raise StackManifestError(f"{MANIFEST}: {error}") from error
    if manifest.schema != SCHEMA:
        raise StackManifestError(f"{MANIFEST} has schema {manifest.schema}, this version reads {SCHEMA}")
    if not is_stack_name(manifest.name):
        raise StackManifestError(f"{MANIFEST}: {manifest.name[:80]!r} is no name of a stack")
    if odd := [package.folder for package in manifest.packages if not is_package_folder(package.folder)]:
        raise StackManifestError(f"{MANIFEST}: {odd[0][:80]!r} is no folder of a package")
    if manifest.view and manifest.view not in manifest.by_folder:
        raise StackManifestError(f"{MANIFEST}: {manifest.view[:80]!r}, the view, is none of its packages")
    if odd := [file.name for file in manifest.files if not _is_module_path(file.name)]:
        raise StackManifestError(f"{MANIFEST}: {odd[0][:80]!r} is no path of a module file")
    return manifest


def is_stack_name(name: str) -> bool:
    """Return True if a text may be the name of a stack, and so of its folder in a published root."""
    return _STACK.fullmatch(name) is not None and name not in RESERVED


def is_package_folder(name: str) -> bool:
    """Return True if a text may be the name of a package's folder, such as `GCC-12.2.0-0123456789ab`."""
    return _FOLDER.fullmatch(name) is not None


def _is_module_path(path: str) -> bool:
    parts = path.split("/")
    return len(parts) > 1 and parts[0] == MODULES and all(part not in ("", ".", "..") and part.isprintable() for part in parts)


class PublishedStack(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate stack_publish/version: the published version, read back from where users read it.

    `version` is the version that the pointer names, `before` the one that it named before. `manifest` is the digest of that
    version's manifest; `present` are its files, `listed` those of its manifest. `unchanged`: this stack was published already, and
    nothing was written. `missing_packages` are folders of packages that the manifest names and the root lacks. `incoming` are half
    copied files of an earlier attempt, `outside` links that lead out of the tree. `signature` is `good`, `bad`, `none`, or
    `unknown` if no signer is trusted. Changes are entries `name@version`, or `name old → new`.
    """

    version: str
    tree: str = ""
    manifest: str = ""
    before: str = ""
    unchanged: bool = False
    present: tuple[ReleaseFile, ...] = ()
    listed: tuple[ReleaseFile, ...] = ()
    packages: int = 0
    copied: int = 0
    """Packages that were copied by this publication; the others were there already."""
    size: int = 0
    """Bytes of all packages and module files."""
    missing_packages: tuple[str, ...] = ()
    wrong_packages: tuple[str, ...] = ()
    """Sentences about packages that differ from what the manifest says."""
    wrong_modules: tuple[str, ...] = ()
    """Sentences about module files that lead to a package that the version does not name, or out of the published root."""
    removed_packages: tuple[str, ...] = ()
    """Folders of packages that no version of any stack named any more."""
    tests: dict[str, str] = {}
    """Outcome of each test by its name, from the version's own manifest."""
    name: str = ""
    """Name of the stack in the version's manifest."""
    key: str = ""
    """Digest of the stack in the version's manifest (`StackInput.key`)."""
    packages_added: tuple[str, ...] = ()
    packages_removed: tuple[str, ...] = ()
    packages_changed: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    signature: str = "none"
    provenance: str = ""
    """Digest of the manifest that the version's provenance is about; empty without provenance that can be read."""
    wrong_statements: tuple[str, ...] = ()
    """Sentences about statements (provenance, test results) that are missing, or about something else than this version."""
    versions: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    incoming: tuple[str, ...] = ()
    problem: str = ""
