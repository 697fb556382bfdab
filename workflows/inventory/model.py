"""An Ansible inventory as data: hosts with their variables, and groups with their members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class BadInventory(ValueError):
    """Error for an inventory that cannot be read or converted into a spec; `hint` says what to do."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """Hosts and groups of an Ansible inventory.

    `hosts` maps each name to its variables, with group variables merged by Ansible; values are as written, templates too. `groups`
    maps each group to its hosts and those of its children, without `all` and `ungrouped`. `parents` are groups that have children
    but no hosts of their own.
    """

    hosts: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, tuple[str, ...]]
    parents: frozenset[str] = frozenset()
