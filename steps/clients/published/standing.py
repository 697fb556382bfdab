"""Whether exactly this image is published already, told cheaply: by its key, the sizes of its files and the text of its scripts."""

from pathlib import Path

from steps.clients.published import publishing, reading, signing
from steps.clients.published import source as sources
from steps.clients.published.local import Local
from steps.clients.published.source import Source
from steps.clients.published.tree import Tree
from steps.contract.image import manifest as manifests
from steps.contract.image import published
from steps.contract.image.published import Place
from steps.errors import StepError


def version(place: Place, image: str, key: str, firmware: tuple[str, ...] = ()) -> str:
    """The current version of an image of that name on this machine, where it has this key, was booted by each firmware, and is as
    it would be published now, with no more versions beside it than stay; empty where anything differs, is missing, or cannot be
    read. Large files are compared by size; `bringup image verify` reads."""
    root = Path(place.root)
    if place.host or not root.is_dir():
        return ""
    try:
        tree = Local(root).look(image)
        return tree.current if tree.current and _is_as_wanted(tree, place, key, firmware) else ""
    except StepError:
        return ""


def _is_as_wanted(tree: Tree, place: Place, key: str, firmware: tuple[str, ...]) -> bool:
    found, at = reading.manifest_of(tree, tree.current), tree.path(published.VERSIONS, tree.current)
    if found is None or found.key != key:
        return False
    there = [(part.size, tree.entries.get(f"{at}/{part.name}")) for part in found.parts]
    sizes = all(entry is not None and entry.is_file and entry.size == size for size, entry in there)
    source = Source(folder=Path(place.root) / at, manifest=found, data=tree.contents[f"{at}/{manifests.MANIFEST}"])
    scripts = {f"{at}/{path}": data for path, data in sources.scripts(source, place, tree.current).items()}
    scripts |= {f"{published.BOOT}/{name}": data for name, data in sources.entries(source, place).items()}
    groups = set(reading.scripts(tree, tree.current)) == {group.name for group in place.groups}
    same = groups and all(tree.contents.get(path) == data for path, data in scripts.items())
    tested = reading.tested(tree, tree.current) >= {f"image_boot.boot_{name}" for name in firmware}
    few = not publishing.spare(tree, place.keep, tree.current)
    return sizes and same and tested and few and signing.suits(tree, tree.current, place)
