"""Enrolment for `bringup host-keys`: scan the keys, show them, ask, write."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format
from workflows.cli.specs import sources
from workflows.host_keys import enrolment as keys
from workflows.host_keys import key_table
from workflows.host_keys.model import KeyState, ScannedKey


class NotConfirmed(ValueError):
    """Error for new keys that nobody confirmed."""

    hint = "compare the fingerprints, then: --yes"


def enrol(source: str, out: Path | None, *, yes: bool, replace: Sequence[str], form: Format) -> int:
    """Show all keys and write those that may be written. Raises NotConfirmed, NoSuchHost."""
    spec = sources.read(source)[1]
    targets = keys.scan_targets(spec, sources.beside(source), out)
    replaced = keys.replaceable_places(targets, replace)
    rows = keys.scan_host_keys(targets)
    _show(rows, form)
    writable, refused = keys.writable_rows(rows, replaced), keys.refused_rows(rows, replaced)
    if writable:
        _confirm(writable, targets.file, yes)
        keys.write_keys(targets.file, writable, replaced & {row.place for row in writable})
    if form is Format.TABLE:
        output.lines(_summary(rows, writable, targets.file))
    for row in refused:
        _warn(row, targets.file)
    if refused:
        return ExitCode.GATE_FAILED
    return ExitCode.TEMPORARY if any(row.state is KeyState.SILENT for row in rows) else ExitCode.OK


def _show(rows: Sequence[ScannedKey], form: Format) -> None:
    if form is Format.TABLE:
        output.table(*key_table.columns(("host", "address", "type", "fingerprint", "state", ""), key_table.fold_rows(rows)))
        if len(new := {row.place for row in rows if row.state is KeyState.NEW}) > key_table.SHOWN:
            output.lines([f"new keys of {len(new)} hosts: `-o json` gives each fingerprint, to be compared by a program"])
    else:
        names = ("host", "address", "type", "fingerprint", "state", "said")
        output.data([dict(zip(names, key_row, strict=True)) for key_row in key_table.key_rows(rows)], form)


def _fingerprint(row: ScannedKey) -> str:
    return row.key.fingerprint if row.key else "-"


def _confirm(wanted: Sequence[ScannedKey], file: Path, yes: bool) -> None:
    hosts = output.count(len({row.place for row in wanted}), "host")
    if yes:
        return
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NotConfirmed(f"nothing was written: nobody said that the keys of {hosts} are the right ones")
    if typer.prompt(f"write the keys of {hosts} to {file}? yes or no", default="no") != "yes":
        raise NotConfirmed(f"nothing was written: the keys of {hosts} were not accepted")


def _summary(rows: Sequence[ScannedKey], wanted: Sequence[ScannedKey], file: Path) -> list[str]:
    counted = Counter(row.state for row in {row.place: row for row in rows}.values())
    counts = ", ".join(f"{count} {state.value}" for state, count in counted.items())
    wrote = f"wrote {output.count(len(wanted), 'key')} to {file}" if wanted else f"nothing to write to {file}"
    return [f"{output.count(sum(counted.values()), 'host')}: {counts}; {wrote}"]


def _warn(row: ScannedKey, file: Path) -> None:
    if row.state is KeyState.REVOKED:
        output.error(f"{row.host} ({row.place}) shows a key that {file} revokes: {_fingerprint(row)}", "give the host a new key")
        return
    output.error(
        f"{row.host} ({row.place}) shows another key than {file} has: {_fingerprint(row)}",
        f"was it installed anew? ask who did, compare the fingerprint, then: --replace {row.host}; else somebody is in between",
    )
