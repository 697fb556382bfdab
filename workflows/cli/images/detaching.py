"""What `bringup image detach-check` compares a tree with, and how it says what leads out, and what it could not look into."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from steps.clients.published import leads
from steps.clients.published.tree import Tree
from steps.contract.image import detached, manifest, published
from steps.contract.image.detached import Factory
from steps.errors import StepError
from workflows.cli import output
from workflows.cli.images.trees import Opened


def factory(store: Path, folders: Iterable[str], hosts: Iterable[str]) -> Factory:
    """The factory: its store and further folders, each as it is named and as it really lies, and its hosts."""
    named = [str(store), *(folder.rstrip("/") or "/" for folder in folders)]
    return Factory(folders=tuple(dict.fromkeys([*named, *map(os.path.realpath, named)])), hosts=tuple(hosts))


def problems(found: Opened, looks: Iterable[Tree], url: str, of: Factory) -> tuple[list[tuple[str, str]], list[str]]:
    """What leads into the factory or out of the tree, as places with reasons; and what could not be looked into, each once."""
    rows = list(_tree_itself(found, of))
    unread: list[str] = []
    for look in looks:
        rows += [(one.place, f"leads to {one.leads_to}: {one.why}") for one in leads.outside(look, url or found.place.url, of)]
        rows += _roots(found, look, of, unread)
    return list(dict.fromkeys(rows)), list(dict.fromkeys(unread))


def _tree_itself(found: Opened, of: Factory) -> Iterable[tuple[str, str]]:
    if found.place.host:
        if found.place.host.lower() in {host.lower() for host in of.hosts}:
            yield found.transport.where, f"the tree itself lies on a host of the factory: {found.place.host}"
        return
    where = found.transport.where
    for folder in of.folders:
        if any(Path(path).is_relative_to(folder) for path in (where, os.path.realpath(where))):
            yield where, f"the tree itself lies in the store of the factory, or another folder of it: {folder}"
            return


def _roots(found: Opened, look: Tree, of: Factory, unread: list[str]) -> Iterable[tuple[str, str]]:
    """What the settings in the packed roots name; trees of other machines are not fetched for it."""
    from steps.clients.image.files import settings_of

    if found.place.host:
        unread.append("the settings in its packed roots, which lie on another machine")
        return
    for version in look.versions:
        place = look.path(published.VERSIONS, version, manifest.ROOT)
        try:
            texts = settings_of.read(Path(look.root, place))
        except StepError as error:
            unread.append(f"the settings in {place} ({error})")
            continue
        for one in detached.settings(texts, of):
            yield f"{place}:{one.place}", f"leads to {one.leads_to}: {one.why}"


def good(looks: Iterable[Tree], of: Factory) -> str:
    """The sentence where nothing was found: what was looked at, and compared with what."""
    every = list(looks)
    links = sum(entry.is_link for look in every for entry in look.entries.values())
    scripts = len({path for look in every for path in look.contents if path.endswith(published.SCRIPT)})
    looked = f"{output.count(links, 'link')} and {output.count(scripts, 'script')} lead nowhere else, and nothing names"
    hosts = f"hosts {', '.join(of.hosts)}" if of.hosts else "no host was named to look for (--factory-host)"
    return f"{looked} {', '.join(of.folders)}; {hosts}"


def show(where: str, looked: str, rows: Sequence[tuple[str, str]], unread: Sequence[str], *, accepted: bool) -> None:
    """Print it for a person."""
    if rows:
        output.table(("place", "what is wrong"), rows)
    elif unread and not accepted:
        output.lines([f"{where}: whether it stands by itself cannot be told; {looked}"])
    else:
        output.lines([f"{where} stands by itself: {looked}"])
    output.lines(f"not looked into: {one}" for one in unread)
    if unread and not accepted:
        output.lines(["--unread-ok takes that as it is; on the boot server itself packed roots can be read"])
