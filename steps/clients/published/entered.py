"""What lies in ROOT/boot: what groups and machines are told to load, as it should be, and the steps that make it so."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from steps.clients.published import leads, reading
from steps.clients.published import source as sources
from steps.clients.published.operations import Folder, Move, Operation, Put, Remove, Replace, Sync
from steps.clients.published.source import Source
from steps.clients.published.tree import Tree
from steps.contract.image import published, publishing
from steps.contract.image.published import Place


def wanted(tree: Tree, source: Source, place: Place) -> dict[str, bytes]:
    """The scripts of an image's groups and machines, and the one that finds a machine's own, by file name. Raises BadTask."""
    return sources.entries(source, place, _besides(tree, leads.entry_points(tree)))


def of_version(tree: Tree, version: str) -> dict[str, bytes]:
    """Scripts of the machines that a version of the tree names, but of those that boot another image since, and before them the one
    that finds a machine's own."""
    url, lead = leads.url_of(tree), leads.entry_points(tree)
    if not url:
        return {}
    named = (name for name in reading.scripts(tree, version) if published.is_machine(name))
    machines = [name for name in named if lead.get(name, "") in ("", tree.image)]
    found = {published.START: publishing.start_script(url, {*_besides(tree, lead), *machines})}
    found |= {name: publishing.entry_script(url, tree.image, name) for name in machines}
    return {f"{name}{published.SCRIPT}": data for name, data in found.items()}


def is_told(tree: Tree, version: str) -> bool:
    """Whether the machines of a version are led to it. What finds their scripts is written before these."""
    scripts = {f"{published.BOOT}/{name}": data for name, data in of_version(tree, version).items()}
    scripts.pop(published.START_SCRIPT, None)  # an older bringup wrote another one
    return all(tree.contents.get(path) == data for path, data in scripts.items())


def _besides(tree: Tree, lead: Mapping[str, str]) -> list[str]:
    """Names in ROOT/boot but of this image's machines, which come and go with its versions."""
    return [name for name, image in lead.items() if image != tree.image or not published.is_machine(name)]


def stale(tree: Tree, names: Collection[str]) -> tuple[str, ...]:
    """Files of machines that lead to this image, which names others: such a machine boots as any other does."""
    lead = leads.entry_points(tree)
    gone = [name for name, image in lead.items() if image == tree.image and published.is_machine(name) and name not in names]
    return tuple(f"{name}{published.SCRIPT}" for name in gone)


def steps(tree: Tree, scripts: Mapping[str, bytes], gone: Iterable[str], staged: str) -> Iterator[Operation]:
    """Those that are not so already, each by one rename; then what goes. A lock is one image's: what another one has entered
    meanwhile is not taken from it, but for the script that all of them share."""
    other = {name: data for name, data in scripts.items() if tree.contents.get(f"{published.BOOT}/{name}") != data}
    if other:
        yield from (Folder(published.BOOT), Sync("."))
        yield from (Put(f"{staged}/{name}", data, len(data)) for name, data in other.items())
        yield from (_named(tree, f"{staged}/{name}", f"{published.BOOT}/{name}") for name in other)
    removed = tuple(gone)
    yield from (Remove(f"{published.BOOT}/{name}") for name in removed)
    if other or removed:
        yield Sync(published.BOOT)


def _named(tree: Tree, path: str, to: str) -> Operation:
    return Replace(path, to) if to in tree.entries or to == published.START_SCRIPT else Move(path, to)
