"""Command about host keys: `bringup host-keys` shows the keys of all hosts, and writes into known_hosts what is new."""

from pathlib import Path
from typing import Annotated

import typer

from workflows.cli.output import Format


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="host-keys")(host_keys)


def host_keys(
    spec: Annotated[str, typer.Argument(help="Spec file, or the name of an example.")] = "cluster.yaml",
    out: Annotated[Path | None, typer.Option("--out", help="File to compare with and to write; default: ssh.known_hosts.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write what is new without being asked.")] = False,
    replace: Annotated[list[str] | None, typer.Option("--replace", metavar="HOST", help="Its key may change; repeat.")] = None,
    form: Annotated[Format, typer.Option("--output", "-o", help="Form of the output.")] = Format.TABLE,
) -> int:
    """Show the keys of all hosts and jump hosts with their fingerprints, and write those that are new into known_hosts.

    Compare the fingerprints with what the machines' consoles or your provisioning say before you say yes; hosts with the same
    outcome are one line, and more than 50 new keys are given one by one with -o json alone. A changed key is never
    written, unless --replace names its host. Hosts with a certificate of a CA that a line `@cert-authority` trusts need nothing.
    Ends with 65 where a key has changed, 75 where a host did not answer.
    """
    from workflows.cli.hosts import keys as doing

    return doing.enrol(spec, out, yes=yes, replace=replace or (), form=form)
