"""The data of a spec → `cluster.yaml`, with a head that says where it came from. Pure."""

from typing import Any

import yaml

from workflows.inventory.taking import Taken


def written(taken: Taken, source: str) -> str:
    """The file. Keys stand in the order of the data, lists and mappings one entry a line."""
    head = [
        f"# Made from the Ansible inventory {source} by `bringup init --from-inventory`; what it could not take over is below.",
        "# Say who answers for it (owner) and which system the machines run (os), then: bringup validate, bringup plan",
    ]
    notes = [f"#   {_line(note)}" for note in taken.notes]
    return "\n".join([*head, *notes, _yaml(dict(taken.data))])


def _line(note: str) -> str:
    return " ".join("".join(letter if letter.isprintable() else " " for letter in note).split())


def _yaml(data: dict[str, Any]) -> str:
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False)
