"""What the file of a tree's history says; `reading.history` adds what whoever was stopped had ready to say. Pure."""

from steps.clients.published.tree import Tree
from steps.contract.image import published, publishing
from steps.contract.image.published import Switch


def switches(tree: Tree) -> tuple[Switch, ...]:
    """Its switches of the pointer, the oldest first."""
    return publishing.read_history(tree.contents.get(tree.path(published.HISTORY), b""))[0]
