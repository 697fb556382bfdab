"""What this store has seen in published trees, by which a tree whose mount is away is told from that of a new site."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from steps.contract.canonical import canonical, digest
from steps.contract.image import published
from steps.contract.image.published import Place
from steps.verbs.context import Context

TREES: Final = "trees"
"""Folder of the store: for each tree one of its own, with a file for each image."""


class Known(Struct, frozen=True, kw_only=True):
    """The newest version of an image that was current in a tree, and where that lies, for who looks into the store."""

    image: str
    version: str
    root: str
    host: str = ""


def known(context: Context, place: Place) -> Mapping[str, str]:
    """Versions by image; nothing of a place that no run of this store has seen. A file that cannot be read says nothing."""
    found = {}
    for key in context.store.keys(_folder(place)):
        try:
            one = msgspec.json.decode(context.store.read(key) or b"", type=Known)
        except msgspec.MsgspecError:
            continue
        found[one.image] = one.version
    return found


def keep(context: Context, place: Place, image: str, version: str, *, again: bool = False) -> None:
    """Keep that this version is current there, where it is the newest so far, or the tree is begun anew on purpose (`again`)."""
    before = known(context, place).get(image, "")
    if version == before or not (again or published.number_of(version) > published.number_of(before)):
        return
    one = Known(image=image, version=version, root=place.root, host=place.host)
    context.store.replace(f"{_folder(place)}/{image}.json", canonical(one))


def _folder(place: Place) -> str:
    return f"{TREES}/{digest([place.host, place.root]).removeprefix('sha256:')[:32]}"
