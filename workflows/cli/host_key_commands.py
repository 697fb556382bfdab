"""The command `bringup host-keys`, which shows the keys of all hosts and writes new ones into known_hosts."""

from pathlib import Path
from typing import Annotated

import typer

from steps.contract.plain_text import count
from workflows.cli import output
from workflows.cli.options import Output, Spec
from workflows.cli.output import Format


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="host-keys")(host_keys)


def host_keys(
    spec: Spec = "cluster.yaml",
    out: Annotated[Path | None, typer.Option("--out", help="File to compare with and to write; default: ssh.known_hosts.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Write what is new without being asked.")] = False,
    replace: Annotated[list[str] | None, typer.Option("--replace", metavar="HOST", help="Its key may change; repeat.")] = None,
    form: Output = Format.TABLE,
) -> int:
    """Show the host keys of all hosts and jump hosts with their fingerprints, and write new ones into known_hosts.

    Compare the fingerprints with those on the machines' consoles or in your provisioning before you say yes. Hosts with the same
    outcome share a line; of more than 50 new keys, only -o json lists each. A changed key is written only if --replace names its
    host. Hosts with a certificate of a CA that a line `@cert-authority` trusts need nothing. The exit code is 65 if a key has
    changed, 75 if a host did not answer.
    """
    from workflows.app import host_key_enrolment

    scan = host_key_enrolment.scan(spec, out, replace or ())
    if form is not Format.TABLE:
        output.data(scan.data(), form)
    else:
        output.table(*scan.table())
        if folded := scan.folded_hosts():
            output.lines([f"new keys of {folded} hosts: `-o json` gives each fingerprint, to be compared by a program"])
    if scan.writable:
        if not yes:
            _confirm(count(scan.new_hosts, "host"), scan.file)
        scan.write()
    if form is Format.TABLE:
        output.lines([scan.summary()])
    for row in scan.refused:
        output.error(*scan.warning(row))
    return scan.exit_code


def _confirm(hosts: str, file: Path) -> None:
    """Ask if the keys are the right ones. Raises NotConfirmed unless a person answers yes."""
    from workflows.app.host_key_enrolment import NotConfirmed

    if not output.can_ask():
        raise NotConfirmed(f"nothing was written: nobody said that the keys of {hosts} are the right ones")
    if typer.prompt(f"write the keys of {hosts} to {file}? yes or no", default="no") != "yes":
        raise NotConfirmed(f"nothing was written: the keys of {hosts} were not accepted")
