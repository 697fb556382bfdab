"""Options and output that commands about published trees of any product share: verification, rollback, detachment."""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

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


class ShownRollback(Protocol):
    """Outcome of a rollback as it is printed: versions, who did it, and the states of signature and statement."""

    @property
    def to(self) -> str:
        """Return the version that is current now."""

    @property
    def before(self) -> str:
        """Return the version that was current before."""

    @property
    def by(self) -> str:
        """Return the user who rolled back."""

    @property
    def signature(self) -> str:
        """Return the state of the version's signature."""

    @property
    def statement(self) -> str:
        """Return the state of the signed statement about the pointer: `signed` anew, `kept`, `missing` or `none`."""

    @property
    def is_unchecked(self) -> bool:
        """Return True if no key is trusted by which the signature could be checked."""

    @property
    def is_unstated(self) -> bool:
        """Return True if a signed statement about the pointer is due, but none names the current version."""

    @property
    def is_signed(self) -> bool:
        """Return True if the statement was signed anew."""


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


def show_rollback(noun: str, name: str, done: ShownRollback, form: Format, note: str = "", **facts: str) -> int:
    """Print the outcome of a rollback of a product and return the exit code; `note` and `facts` are the product's own."""
    notes = f"; {UNCHECKED}" if done.is_unchecked else ""
    notes += note
    notes += UNSTATED.format(noun, done.to) if done.is_unstated else ""
    if form is not Format.TABLE:
        data = {noun: name, "current": done.to, "before": done.before, "by": done.by}
        output.data(data | {"signature": done.signature, "statement": done.statement} | facts, form)
    elif done.to == done.before:
        written = "signed anew" if done.is_signed else "nothing is written"
        output.lines([f"{name}: {done.to} is current already: {written}{notes}"])
    else:
        output.lines([f"{name}: {done.to} is current, it was {done.before}{notes}"])
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
