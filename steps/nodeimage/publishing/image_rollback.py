"""Rollback of a node image to a version that is still in the tree."""

from msgspec import Struct

from steps.clients.releases import release_rollback
from steps.clients.releases.tree_operations import TreeTransport
from steps.nodeimage.publishing import external_links, image_kind


class ImageRollback(Struct, frozen=True, kw_only=True):
    """Outcome of a rollback: the version that the pointer names now, the one that it named before, who did it, state of the
    version's signature, and the address from which nodes fetch the version, if the tree has another address now (`elsewhere`).
    """

    to: str
    before: str
    by: str
    signature: str
    elsewhere: str = ""


def roll_back(transport: TreeTransport, image: str, version: str, by: str, signers: tuple[str, ...] = ()) -> ImageRollback:
    """Point to a version; without one to the version that was current before (see `release_rollback.roll_back`).

    Raises BadTask for a version that is not there. Raises Refused for one that is not whole, that nodes of a group could not boot,
    or, if it is not named, that nodes fetch from another address.
    """
    done = release_rollback.roll_back(image_kind.image_kind(), transport, image, version, by, signers)
    address, here = external_links.version_url(done.tree, done.to), external_links.url_of(done.tree)
    elsewhere = address if address and here and address != here else ""
    return ImageRollback(to=done.to, before=done.before, by=done.by, signature=done.signature, elsewhere=elsewhere)
