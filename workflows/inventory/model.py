"""What an Ansible inventory says, as data: hosts with their variables, and groups with their members."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class BadInventory(ValueError):
    """An inventory that cannot be read, or no spec can be made of; `hint` says what to do."""

    def __init__(self, sentence: str, hint: str) -> None:
        super().__init__(sentence)
        self.hint = hint


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """`hosts` maps each name to its variables, those of its groups merged in by Ansible's own rules; values are as they were
    written, templates too. `groups` maps each group to its hosts, those of its children included; `all` and `ungrouped` are left
    out. `parents` are the groups that have children and no hosts of their own."""

    hosts: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, tuple[str, ...]]
    parents: frozenset[str] = frozenset()
