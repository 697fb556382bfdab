"""Whether a tree is another one than was published to before: the folder that its mount hides, say, while that is away. Pure."""

from collections.abc import Mapping

from steps.clients.published import reading
from steps.clients.published.tree import Tree
from steps.contract.image import published, publishing
from steps.errors import Refused

_STEP = "mount what it should be; where it was made anew, or restored, begin with what is there: bringup image build --again"


def refuse(tree: Tree, where: str, known: Mapping[str, str]) -> None:
    """Raise Refused where the newest version of this image that was ever seen in this place (`known`, by image) is newer than all
    that the tree tells of, or where it has nothing at all and others were. Of a new site nothing is known."""
    newest, own = publishing.next_number(tree.versions, reading.history(tree)) - 1, known.get(tree.image, "")
    if published.number_of(own) > newest:
        there = (
            f"its newest version of {tree.image} is {tree.versions[-1]}" if tree.versions else f"it has no version of {tree.image}"
        )
        raise Refused(f"{where}: {there}, but {own} was published there; is it mounted?", hint=_STEP)
    if known and not tree.images and not tree.names(published.BOOT):
        image, version = min(known.items())
        raise Refused(f"{where}: it is empty, but {image} {version} was published there; is it mounted?", hint=_STEP)
