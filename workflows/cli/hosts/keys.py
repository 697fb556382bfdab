"""What `bringup host-keys` does: look, show, ask, write."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format
from workflows.cli.specs import sources
from workflows.host_keys import enrol as keys
from workflows.host_keys import folding
from workflows.host_keys.model import Seen, State


class NotConfirmed(ValueError):
    """New keys, and nobody who says that they are the right ones."""

    hint = "compare the fingerprints, then: --yes"


def enrol(source: str, out: Path | None, *, yes: bool, replace: Sequence[str], form: Format) -> int:
    """Show all keys and write what may be written. Raises NotConfirmed, NoSuchHost."""
    spec = sources.read(source)[1]
    asked = keys.fleet(spec, sources.beside(source), out)
    replaced = keys.replaced(asked, replace)
    rows = keys.look(asked)
    _show(rows, form)
    wanted, refused = keys.to_write(rows, replaced), keys.refused(rows, replaced)
    if wanted:
        _confirm(wanted, asked.file, yes)
        keys.write(asked.file, wanted, replaced & {row.place for row in wanted})
    if form is Format.TABLE:
        output.lines(_summary(rows, wanted, asked.file))
    for row in refused:
        _warn(row, asked.file)
    if refused:
        return ExitCode.GATE_FAILED
    return ExitCode.TEMPORARY if any(row.state is State.SILENT for row in rows) else ExitCode.OK


def _show(rows: Sequence[Seen], form: Format) -> None:
    if form is Format.TABLE:
        output.table(*folding.columns(("host", "address", "type", "fingerprint", "state", ""), folding.folded(rows)))
        if len(new := {row.place for row in rows if row.state is State.NEW}) > folding.SHOWN:
            output.lines([f"new keys of {len(new)} hosts: `-o json` gives each fingerprint, to be compared by a program"])
    else:
        names = ("host", "address", "type", "fingerprint", "state", "said")
        output.data([dict(zip(names, one, strict=True)) for one in folding.of_each(rows)], form)


def _fingerprint(row: Seen) -> str:
    return row.key.fingerprint if row.key else "-"


def _confirm(wanted: Sequence[Seen], file: Path, yes: bool) -> None:
    hosts = output.count(len({row.place for row in wanted}), "host")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotConfirmed(f"nothing was written: nobody said that the keys of {hosts} are the right ones")
    if typer.prompt(f"write the keys of {hosts} to {file}? yes or no", default="no") != "yes":
        raise NotConfirmed(f"nothing was written: the keys of {hosts} were not accepted")


def _summary(rows: Sequence[Seen], wanted: Sequence[Seen], file: Path) -> list[str]:
    counted = Counter(row.state for row in {row.place: row for row in rows}.values())
    said = ", ".join(f"{count} {state.value}" for state, count in counted.items())
    wrote = f"wrote {output.count(len(wanted), 'key')} to {file}" if wanted else f"nothing to write to {file}"
    return [f"{output.count(sum(counted.values()), 'host')}: {said}; {wrote}"]


def _warn(row: Seen, file: Path) -> None:
    if row.state is State.REVOKED:
        output.error(f"{row.host} ({row.place}) shows a key that {file} revokes: {_fingerprint(row)}", "give the host a new key")
        return
    output.error(
        f"{row.host} ({row.place}) shows another key than {file} has: {_fingerprint(row)}",
        f"was it installed anew? ask who did, compare the fingerprint, then: --replace {row.host}; else somebody is in between",
    )
