"""The command `bringup host-keys`, which shows the keys of all hosts and writes new ones into known_hosts."""

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
    """Show the host keys of all hosts and jump hosts with their fingerprints, and write new ones into known_hosts.

    Compare the fingerprints with those on the machines' consoles or in your provisioning before you say yes. Hosts with the same
    outcome share a line; of more than 50 new keys, only -o json lists each. A changed key is written only if --replace names its
    host. Hosts with a certificate of a CA that a line `@cert-authority` trusts need nothing. The exit code is 65 if a key has
    changed, 75 if a host did not answer.
    """
    from workflows.cli.hosts import keys as doing

    return doing.enrol(spec, out, yes=yes, replace=replace or (), form=form)
