"""Packages, by the package manager that the machine's family has as data."""

from __future__ import annotations

from typing import Optional

from ansible.module_utils.nodeprofile.item import (
    CHANGED,
    DIFFERS,
    FAILED,
    OK,
    CannotChange,
    Item,
    Node,
    item,
)


def packages(node: Node, wanted: list, family: Optional[dict]) -> list:
    """Packages that must be there; all that lack are installed at once, and one by one where that fails."""
    if not wanted:
        return []
    if family is None:
        return [
            item("package " + name, FAILED, want="present", why="no package manager is known for this distribution")
            for name in wanted
        ]
    before = _versions(node, wanted, family)
    lacking = [name for name in wanted if name not in before]
    errors = {} if node.check_mode or not lacking else _install(node, lacking, family)
    after = before if node.check_mode or not lacking else _versions(node, wanted, family)
    return [_item(node, name, before.get(name, ""), after.get(name, ""), errors.get(name, "")) for name in wanted]


def _item(node: Node, name: str, before: str, after: str, error: str) -> Item:
    label = "package " + name
    if before:
        return item(label, OK, want="present", after=before)
    if node.check_mode:
        return item(label, DIFFERS, want="present", before="absent", after="absent")
    if after:
        return item(label, CHANGED, want="present", before="absent", after=after)
    return item(label, FAILED, want="present", before="absent", after="absent", why=error or "installed, but not listed")


def _versions(node: Node, names: list, family: dict) -> dict:
    """Version of each installed package; the query prints `name<TAB>status<TAB>version`."""
    _, output, _ = node.run(*(family["query"] + names))
    rows = [line.split("\t") for line in output.splitlines()]
    return {row[0]: row[2] for row in rows if len(row) == 3 and row[1].endswith("installed") and "not-installed" not in row[1]}


def _install(node: Node, names: list, family: dict) -> dict:
    """Install; the error of each that could not be."""
    try:
        if family["refresh"]:
            node.must(*family["refresh"], **family["environment"])
        node.must(*(family["install"] + names), **family["environment"])
    except CannotChange as error:
        if len(names) == 1:
            return {names[0]: str(error)}
        return {name: text for one in names for name, text in _install(node, [one], dict(family, refresh=[])).items()}
    return {}
