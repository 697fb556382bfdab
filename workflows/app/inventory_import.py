"""Conversion for `bringup init --from-inventory`: read the inventory, make and check a spec, write it, list what is left out."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from steps.contract.plain_text import count
from workflows.app.specs.starter_files import write_starter
from workflows.inventory import ansible_inventory, spec_conversion
from workflows.inventory.grouping import snake
from workflows.inventory.model import BadInventory
from workflows.inventory.spec_conversion import ConversionOptions, convert
from workflows.spec import SpecErrors, load

_VAGUE = {"hosts", "inventory", "inventories", "production", "main"}


def import_inventory(source: Path, out: Path, servers: str, groups: Sequence[str], vault: Path | None) -> Iterator[str]:
    """Convert an Ansible inventory, write its spec to `out`, and yield lines about it for the user. Raises BadInventory."""
    if ansible_inventory.is_program(source):
        yield f"asking {source} for its hosts, for at most {ansible_inventory.SECONDS} s"
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
    files = write_starter(out, text)
    counts = f"{count(len(spec.machines), 'host')} in {count(len(spec.hosts), 'group')}"
    yield f"wrote {files}: {counts}; say owner and os, then: bringup validate {out}"
    yield from (f"note: {note}" for note in converted.notes)


def _name(source: Path) -> str:
    """Return a name for the cluster from the name of the inventory's file, or of its folders if that is too general."""
    path = source.absolute()
    stems = (path.name.partition(".")[0], path.parent.name, path.parent.parent.name)
    usable = [snake(stem).replace("_", "-") for stem in stems if stem and stem.lower() not in _VAGUE]
    return next((name for name in usable if re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name)), "my-cluster")
