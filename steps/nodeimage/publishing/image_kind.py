"""Node images as a product of `steps.clients.releases`, and connections to their release folders."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

from steps.clients.releases import connections, release_signatures, verification
from steps.clients.releases.local_transport import LocalTransport
from steps.clients.releases.release_kind import Contents, ReleaseKind, TreeProblem
from steps.clients.releases.release_tree import ReleaseTree, TreeLayout
from steps.clients.releases.tree_operations import TreeTransport
from steps.contract import release_layout
from steps.contract.release_layout import ReleaseError, ReleaseTarget
from steps.nodeimage.contract import boot_tree, image_manifest
from steps.nodeimage.contract.image_manifest import ManifestError
from steps.nodeimage.publishing import boot_entries, external_links, image_verification, image_versions

LAYOUT = TreeLayout(
    manifest=image_manifest.MANIFEST, pointer=release_layout.CURRENT, shared=boot_tree.BOOT, read=(boot_tree.SCRIPT,)
)
"""File and folder names in a release folder of node images."""


def image_kind(url: str = "") -> ReleaseKind:
    """Return the `ReleaseKind` of node images: the functions by which a release folder publishes, verifies and rolls back images.

    `url` is the folder's address; empty: the address that its scripts and entries name.
    """
    return ReleaseKind(
        noun="image",
        command="bringup image",
        namespace=image_manifest.NAMESPACE,
        contents=_contents,
        layout=LAYOUT,
        required=(boot_tree.TESTS,),
        folders=(boot_tree.BOOT,),
        external_links=partial(external_links.external_links, url=url),
        shared_files=boot_entries.for_version,
        refuse_rollback=boot_entries.refuse_rollback,
        version_problems=_version_problems,
        tree_problems=partial(image_verification.entry_problems, url=url),
        usage=image_versions.usage_report,
        machines=image_versions.machines,
    )


def _version_problems(tree: ReleaseTree, version: str) -> Iterator[TreeProblem]:
    from steps.nodeimage.publishing import image_provenance  # imported here: a build that finds nothing changed reads none

    yield from image_verification.script_problems(tree, version)
    yield from image_provenance.problems(tree, version)


def _contents(data: bytes) -> Contents:
    try:
        image = image_manifest.decode(data)
    except ManifestError as error:
        raise ReleaseError(str(error)) from error
    root = image.part(image_manifest.ROOT)
    return Contents(product=image.name, files=image.parts, digests=frozenset({root.digest} if root else ()))


def connect(target: ReleaseTarget, secrets: Path) -> AbstractContextManager[TreeTransport]:
    """Return a context manager with a transport to the target's release folder, by SSH if it has a host. Raises a StepError."""
    return connections.connected(target, secrets, LAYOUT)


def local_tree(root: Path) -> LocalTransport:
    """Return a transport to a release folder on this machine. Raises a StepError if `root` is no folder."""
    return LocalTransport(root, LAYOUT)


def problems(tree: ReleaseTree, signers: tuple[str, ...] = (), url: str = "") -> tuple[TreeProblem, ...]:
    """Return everything that is wrong with an image in a release folder, which must have been read with digests of all versions.

    `url` is the address at which nodes reach the folder; empty: the one in the scripts of the current version.
    """
    return verification.tree_problems(image_kind(url or image_verification.current_url(tree)), tree, signers)


def signature_state(tree: ReleaseTree, version: str, signers: tuple[str, ...]) -> str:
    """Return the state of a version's signatures in words (see `release_signatures.state`)."""
    return release_signatures.state(image_kind(), tree, version, signers)
