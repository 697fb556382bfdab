"""Options and output that commands about published trees of any product share: verification, rollback, detachment."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import Struct

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.output import Format

Signer = Annotated[
    list[Path] | None, typer.Option("--signer", help="File with a trusted public key; repeat for more; default: those of the spec.")
]
SignKey = Annotated[
    Path | None,
    typer.Option("--sign-key", metavar="FILE", help="The publisher's private key; default: the spec's, if it is here."),
]
RollbackVersion = Annotated[str, typer.Argument(help="Version or its number; default: the one that was current before.")]
Who = Annotated[str, typer.Option("--as", metavar="NAME", help="Your name; the history keeps it.")]
FactoryHosts = Annotated[list[str] | None, typer.Option("--factory-host", help="A host of the factory; repeat for more.")]
FactoryFolders = Annotated[list[str] | None, typer.Option("--factory-folder", help="A folder of the factory; repeat for more.")]
ExitCodeFlag = Annotated[bool, typer.Option("--exit-code", help="End with 65 where they differ, for scripts.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")]
UNCHECKED = "signatures not checked: name a trusted key with --signer"
UNSTATED = "; nothing signed says that it is current, which verify finds; sign it: bringup {} rollback {} --sign-key FILE"
_SHORT = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")
"""Pattern of a commit id, which tables cut to twelve digits; `-o json` has it whole."""


class RollbackView(Struct, frozen=True, kw_only=True):
    """Outcome of a rollback as it is printed: the product's noun and name, versions, who did it, states, and further notes.

    `unchecked`: no key was trusted; `unstated`: nothing signed names the version now; `signed`: its statement was signed anew.
    """

    noun: str
    name: str
    to: str
    before: str
    by: str
    signature: str
    statement: str
    unchecked: bool
    unstated: bool
    signed: bool
    notes: str = ""
    facts: dict[str, str] = {}


def show_verification(
    location: str, counted: str, rows: Sequence[tuple[str, str]], data: Mapping[str, Any], notes: Iterable[str], form: Format
) -> int:
    """Print the result of a verification and return the exit code: `rows` are (place, reason) of what is wrong."""
    if form is not Format.TABLE:
        output.data({"ok": not rows, "problems": problem_data(rows), **data}, form)
    elif rows:
        output.table(("place", "what is wrong"), rows)
        output.lines(notes)
    else:
        output.lines([f"{location}: {counted}", *notes])
    return ExitCode.GATE_FAILED if rows else ExitCode.OK


def show_rollback(done: RollbackView, form: Format) -> int:
    """Print the outcome of a rollback and return the exit code."""
    notes = f"; {UNCHECKED}" if done.unchecked else ""
    notes += done.notes
    notes += UNSTATED.format(done.noun, done.to) if done.unstated else ""
    if form is not Format.TABLE:
        facts = {done.noun: done.name, "current": done.to, "before": done.before, "by": done.by}
        output.data(facts | {"signature": done.signature, "statement": done.statement} | done.facts, form)
    elif done.to == done.before:
        written = "signed anew" if done.signed else "nothing is written"
        output.lines([f"{done.name}: {done.to} is current already: {written}{notes}"])
    else:
        output.lines([f"{done.name}: {done.to} is current, it was {done.before}{notes}"])
    return ExitCode.OK


def problem_data(rows: Iterable[tuple[str, str]]) -> list[dict[str, str]]:
    """Return problems, each a (place, reason), as data."""
    return [{"place": place, "why": why} for place, why in rows]


def when(seconds: float) -> str:
    """Return a time (UTC seconds) for people; `never` for 0."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(seconds)) if seconds else "never"


def short(text: str) -> str:
    """Return a text with its commit ids cut to twelve digits."""
    return _SHORT.sub(r"\1", text)
