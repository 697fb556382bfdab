"""Versions that runs saw in release trees, kept in the run store.

By them a folder whose mount is missing is distinguished from the folder of a new site (`preflight.refuse_wrong_mount`).
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from steps.clients.store import Store
from steps.contract import release_layout
from steps.contract.canonical import UNREADABLE_JSON, canonical, digest
from steps.contract.release_layout import ReleaseTarget

TREES: Final = "trees"
"""Folder of the run store with a folder for each release tree, and in that a file for each product (`KnownVersion`)."""


class KnownVersion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Newest version of a product that was current in a release tree; `root` and `host` are for people who read the store.

    Files of earlier releases of bringup name the product in `image`.
    """

    version: str
    root: str
    product: str = ""
    host: str = ""
    image: str = ""

    @property
    def name(self) -> str:
        """Return the name of the product."""
        return self.product or self.image


def known_versions(store: Store, target: ReleaseTarget) -> Mapping[str, str]:
    """Return product → newest version that runs with this store saw in a release tree; empty for an unknown tree.

    Unreadable files are skipped.
    """
    versions = {}
    for key in store.keys(_folder(target)):
        try:
            known = msgspec.json.decode(store.read(key) or b"", type=KnownVersion)
        except UNREADABLE_JSON:
            continue
        versions[known.name] = known.version
    return versions


def remember_version(store: Store, target: ReleaseTarget, product: str, version: str, *, again: bool = False) -> None:
    """Record that a version is current, if it is the newest so far or the release tree is started anew on purpose (`again`)."""
    before = known_versions(store, target).get(product, "")
    if version == before or not (again or release_layout.number_of(version) > release_layout.number_of(before)):
        return
    known = KnownVersion(product=product, version=version, root=target.root, host=target.host)
    store.replace(f"{_folder(target)}/{product}.json", canonical(known))


def _folder(target: ReleaseTarget) -> str:
    return f"{TREES}/{digest([target.host, target.root]).removeprefix('sha256:')[:32]}"
