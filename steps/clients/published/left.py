"""Whether somebody went back from an image: neither the same boot scripts nor others lead to it again by themselves. Pure."""

from collections.abc import Mapping

from steps.clients.published import reading
from steps.clients.published import source as sources
from steps.clients.published.source import Source
from steps.clients.published.tree import Tree
from steps.contract.image import publishing
from steps.contract.image.published import Place, Switch


def by_rollback(tree: Tree, place: Place, alike: Mapping[str, Source]) -> Switch | None:
    """The rollback that left an image, which all the versions `alike` are, each with what its scripts are rendered from: all whose
    groups start it in the same way, for a machine more, or another address of the tree, mends nothing of what the image did. One
    from one of these to another left those scripts, whichever is current now. None where neither is so, or what was left became
    current since."""
    exact = tuple(name for name, source in alike.items() if sources.boots_alike(source, tree, place, name))
    same = tuple(name for name, source in alike.items() if sources.starts_alike(source, tree, place, name))
    history = reading.history(tree)
    if tree.current in exact:
        return None
    if tree.current not in same and (found := publishing.left_by_rollback(history, same)):
        return found
    found = publishing.left_by_rollback(history, exact)
    return found if found and found.to in same else None
