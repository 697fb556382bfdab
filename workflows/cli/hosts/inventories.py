"""What `bringup init --from-inventory` does: read, make a spec, check it, write it, say what is not in it."""

import re
from collections.abc import Sequence
from pathlib import Path

from workflows.cli import output
from workflows.inventory import reading, text
from workflows.inventory.grouping import snake
from workflows.inventory.model import BadInventory
from workflows.inventory.taking import Choice, taken
from workflows.spec import SpecErrors, load

_VAGUE = {"hosts", "inventory", "inventories", "production", "main"}


def begin(source: Path, out: Path, servers: str, groups: Sequence[str], vault: Path | None) -> None:
    """Write the spec of an inventory. Raises BadInventory."""
    if reading.is_program(source):
        output.lines([f"asking {source} for its hosts, for at most {reading.SECONDS} s"])
    folder = source.absolute() if source.is_dir() else source.absolute().parent
    made = taken(reading.read(source, vault), Choice(name=_name(source), servers=servers, groups=groups, folder=str(folder)))
    written = text.written(made, source.name)
    try:
        spec = load(written)
    except SpecErrors as wrong:
        first = wrong.errors[0]
        raise BadInventory(f"{source} makes no spec: {first.path}: {first.problem} ({first.value})", first.fix) from wrong
    out.write_text(written)
    said = f"{output.count(len(spec.machines), 'host')} in {output.count(len(spec.hosts), 'group')}"
    output.lines([f"wrote {out}: {said}; say owner and os, then: bringup validate {out}"])
    output.lines(f"note: {note}" for note in made.notes)


def _name(source: Path) -> str:
    """A name for the cluster: the file's, or its folder's where that says nothing."""
    path = source.absolute()
    stems = (path.name.partition(".")[0], path.parent.name, path.parent.parent.name)
    usable = [snake(stem).replace("_", "-") for stem in stems if stem and stem.lower() not in _VAGUE]
    return next((name for name in usable if re.fullmatch(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", name)), "my-cluster")
