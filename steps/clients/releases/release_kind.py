"""Description of a product's releases: names, rules and functions by which publish, roll back, verify and usage handle any product.

A product (node images, software stacks) makes one `ReleaseKind` and, for each publication, one `StagedRelease`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from msgspec import Struct

from steps.clients.releases.release_tree import ReleaseTree, TreeLayout
from steps.contract import detachment, release_layout
from steps.contract.canonical import digest_bytes
from steps.contract.detachment import NO_FACTORY, ExternalLink, Factory
from steps.contract.release_layout import ReleaseError, ReleaseFile, Switch, UsageReport


class TreeProblem(Struct, frozen=True, kw_only=True):
    """A wrong file in a release tree: its path below the root, and what is wrong with it."""

    place: str
    why: str


class Contents(Struct, frozen=True, kw_only=True):
    """The parts of a manifest that a release tree needs.

    They are the product's name, the files that the release must have, and the digests by which usage reports may name the version
    (besides the digest of the manifest). `links` are the symbolic links of a version with their targets.
    """

    product: str
    files: tuple[ReleaseFile, ...]
    digests: frozenset[str] = frozenset()
    links: dict[str, str] = {}


class SharedFiles(Struct, frozen=True, kw_only=True):
    """Files beside the products that follow the pointer: `files` by name, and the names of `stale` files to remove.

    Files in `common` are written by all products, so each publication replaces them.
    """

    files: dict[str, bytes] = {}
    stale: tuple[str, ...] = ()
    common: frozenset[str] = frozenset()


def no_shared_files(_tree: ReleaseTree, _version: str) -> SharedFiles:
    """Return no shared files; default for products that write nothing beside their own folder."""
    return SharedFiles()


def allow_rollback(tree: ReleaseTree, version: str, *, is_named: bool) -> None:
    """Do nothing, so that a rollback to any whole version is allowed; default of `ReleaseKind.refuse_rollback`."""


def no_problems(*_: object) -> Iterable[TreeProblem]:
    """Return no problems; default for products without further rules about a version or a tree."""
    return ()


def any_machine(_tree: ReleaseTree) -> frozenset[str] | None:
    """Return None, which means that reports of all machines count; default of `ReleaseKind.machines`."""
    return None


def links_out(tree: ReleaseTree, factory: Factory = NO_FACTORY) -> Iterator[ExternalLink]:
    """Yield the symbolic links that lead out of a tree, then the files of versions that have a second hard link."""
    yield from detachment.symbolic_links(
        tree.root, {path: entry.target for path, entry in tree.entries.items() if entry.is_link}, factory
    )
    yield from hard_links(tree)


def hard_links(tree: ReleaseTree) -> Iterator[ExternalLink]:
    """Yield the files of versions that have a second hard link, because writing through it would change a published file."""
    for path, entry in tree.below(tree.path(release_layout.VERSIONS)).items():
        if entry.is_file and entry.names > 1:
            place = tree.path(release_layout.VERSIONS, path)
            yield ExternalLink(place=place, leads_to="another name of the same bytes", why="what is written there changes it here")


class ReleaseKind(Struct, frozen=True, kw_only=True):
    """Description of a product's releases, made once by the product: its names and rules, besides those of every release tree.

    `noun` and `command` are words for messages ("image", "bringup image"); the command has `verify`, `rollback` and `build
    --again`. `namespace` is that of signatures (`ssh-keygen -Y sign -n`). `contents` reads a manifest and raises ReleaseError for
    one that is none. SHA256SUMS must list the manifest and the `required` files; `folders` may be empty in a version.
    """

    noun: str
    command: str
    namespace: str
    contents: Callable[[bytes], Contents]
    layout: TreeLayout = TreeLayout()
    required: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    external_links: Callable[[ReleaseTree], Iterable[ExternalLink]] = links_out
    """Function that yields all external links of a tree. A publication is refused if its own files are among them."""
    shared_files: Callable[[ReleaseTree, str], SharedFiles] = no_shared_files
    """Function that returns the shared files of a version that is in the tree, for a rollback to it."""
    refuse_rollback: Callable[..., None] = allow_rollback
    """Function `(tree, version, is_named=…)` that raises Refused if readers could not use the version; `is_named`: by a person."""
    version_problems: Callable[[ReleaseTree, str], Iterable[TreeProblem]] = no_problems
    tree_problems: Callable[[ReleaseTree], Iterable[TreeProblem]] = no_problems
    usage: Callable[[str, bytes], UsageReport | None] | None = None
    """Function that reads a node's report (name of its file, bytes), None for an unreadable one. Without it no report is read."""
    machines: Callable[[ReleaseTree], frozenset[str] | None] = any_machine
    """Function that returns the machines that may use the product; None if any may."""

    def contents_of(self, tree: ReleaseTree, version: str) -> Contents | None:
        """Return the parsed manifest of a version; None if it is missing or unreadable."""
        data = tree.manifest(version)
        try:
            return None if data is None else self.contents(data)
        except ReleaseError:
            return None

    def files_of(self, tree: ReleaseTree, version: str) -> tuple[ReleaseFile, ...]:
        """Return the files that a version must have: those of its manifest, and those that only its SHA256SUMS lists."""
        contents = self.contents_of(tree, version)
        files = {file.name: file for file in contents.files} if contents else {}
        for name, digest in tree.sums(version).items():
            entry = tree.entries.get(tree.version_path(version, name))
            files.setdefault(name, ReleaseFile(name=name, digest=digest, size=entry.size if entry else 0))
        return tuple(files[name] for name in sorted(files))


def files_found(tree: ReleaseTree, version: str) -> tuple[ReleaseFile, ...]:
    """Return the files in a version's folder, except SHA256SUMS and its signature.

    Their digests are empty unless the tree was read with the digests of this version.
    """
    folder = tree.version_path(version)
    files = {name: entry for name, entry in tree.below(folder).items() if entry.is_file}
    names = sorted(set(files) - {release_layout.SUMS, release_layout.SUMS_SIGNATURE})
    return tuple(ReleaseFile(name=name, digest=tree.digests.get(f"{folder}/{name}", ""), size=files[name].size) for name in names)


def folders_of(names: Iterable[str]) -> set[str]:
    """Return every folder above the given files, as relative paths."""
    return {str(folder) for name in names for folder in PurePosixPath(name).parents} - {"."}


class StagedRelease(Struct, frozen=True, kw_only=True):
    """A release that is to be published: a folder of files, its manifest, and small files that the manifest does not list.

    `metadata` are those small files by path, `links` the symbolic links that the manifest implies. A product overrides methods
    where its releases have more rules.
    """

    kind: ReleaseKind
    product: str
    folder: Path
    manifest: bytes
    files: tuple[ReleaseFile, ...]
    metadata: Mapping[str, bytes] = {}
    links: Mapping[str, str] = {}

    @property
    def digest(self) -> str:
        """Return the digest of the manifest."""
        return digest_bytes(self.manifest)

    @property
    def size(self) -> int:
        """Return the total size in bytes of the files that the manifest lists."""
        return sum(file.size for file in self.files)

    def small_files(self, version: str) -> dict[str, bytes]:  # noqa: ARG002  # products render files by version
        """Return the files of a version that the manifest does not list, by path. Raises BadTask if they cannot be made."""
        return dict(self.metadata)

    def shared_files(self, tree: ReleaseTree) -> SharedFiles:  # noqa: ARG002  # products read the tree
        """Return the shared files to write when the pointer switches to this release. Raises BadTask if they cannot be made."""
        return SharedFiles()

    def refuse(self, tree: ReleaseTree) -> None:
        """Raise Refused if the tree has something that this release must not replace or make unusable. By default, do nothing."""

    def is_same(self, manifest: bytes) -> bool:
        """Return True if a manifest describes the same release, even if the manifests differ in how it was made."""
        try:
            return self.kind.contents(manifest) == self.kind.contents(self.manifest)
        except ReleaseError:
            return False

    def is_suitable(self, tree: ReleaseTree, version: str) -> bool:  # noqa: ARG002  # products compare both
        """Return True if a version that holds the same release needs no new copy, so that the pointer may just name it."""
        return True

    def rolled_back(self, tree: ReleaseTree, alike: tuple[str, ...]) -> Switch | None:
        """Return the rollback by which a person left this release; None if nobody rolled back from it.

        `alike` are the versions that hold this release.
        """
        return None if tree.current in alike else release_layout.abandoning_rollback(tree.history, alike)

    def alike(self, tree: ReleaseTree) -> tuple[str, ...]:
        """Return the versions of the tree that hold this release, the oldest first."""
        manifests = ((version, tree.manifest(version)) for version in tree.versions)
        return tuple(version for version, manifest in manifests if manifest is not None and self.is_same(manifest))

    def is_current(self, tree: ReleaseTree) -> bool:
        """Return True if the pointer names a version that holds this release."""
        manifest = tree.manifest(tree.current) if tree.current else None
        return manifest is not None and self.is_same(manifest)
