"""Conversion for `bringup init --from-inventory`: read the inventory, make and check a spec, write it, list what is left out."""

import re
from collections.abc import Sequence
from pathlib import Path

from workflows.cli import output
from workflows.inventory import ansible_inventory, spec_conversion
from workflows.inventory.grouping import snake
from workflows.inventory.model import BadInventory
from workflows.inventory.spec_conversion import ConversionOptions, convert
from workflows.spec import SpecErrors, load

_VAGUE = {"hosts", "inventory", "inventories", "production", "main"}


def begin(source: Path, out: Path, servers: str, groups: Sequence[str], vault: Path | None) -> None:
    """Write the spec of an inventory. Raises BadInventory."""
    if ansible_inventory.is_program(source):
        output.lines([f"asking {source} for its hosts, for at most {ansible_inventory.SECONDS} s"])
    folder = source.absolute() if source.is_dir() else source.absolute().parent
    converted = convert(
        ansible_inventory.read(source, vault),
        ConversionOptions(name=_name(source), servers=servers, groups=groups, folder=str(folder)),
    )
    text = spec_conversion.render_spec(converted, source.name)
    try:
        spec = load(text)
    except SpecErrors as errors:
        first = errors.errors[0]
        raise BadInventory(f"{source} makes no spec: {first.path}: {first.problem} ({first.value})", first.fix) from errors
    out.write_text(text)
    counts = f"{output.count(len(spec.machines), 'host')} in {output.count(len(spec.hosts), 'group')}"
    output.lines([f"wrote {out}: {counts}; say owner and os, then: bringup validate {out}"])
    output.lines(f"note: {note}" for note in converted.notes)


def _name(source: Path) -> str:
    """Return a name for the cluster: the file's, or its folder's if that one is too general."""
    path = source.absolute()
    stems = (path.name.partition(".")[0], path.parent.name, path.parent.parent.name)
    usable = [snake(stem).replace("_", "-") for stem in stems if stem and stem.lower() not in _VAGUE]
    return next((name for name in usable if re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name)), "my-cluster")
