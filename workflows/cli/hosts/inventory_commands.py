"""The command `bringup inventory`, which writes an Ansible inventory; `bringup init --from-inventory` reads one."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output


class Form(StrEnum):
    """Values of `--output`."""

    YAML = "yaml"
    INI = "ini"
    JSON = "json"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(inventory)


def inventory(
    spec: Annotated[str, typer.Argument(help="Spec file, or the name of an example.")] = "cluster.yaml",
    form: Annotated[Form, typer.Option("--output", "-o", help="Its form; json is what a dynamic one prints.")] = Form.YAML,
    out: Annotated[Path | None, typer.Option("--out", help="File to write; default: to the terminal.")] = None,
) -> int:
    """Write the hosts of a spec as an Ansible inventory: groups, addresses, users, ports, key, jump hosts."""
    from workflows.cli.specs import sources
    from workflows.inventory import inventory_export

    path, read = sources.read(spec)
    text = inventory_export.render_inventory(inventory_export.export_inventory(read, sources.beside(spec)), form.value)
    if out is None:
        output.lines([text.rstrip("\n")])
        return ExitCode.OK
    if out.exists() and out.samefile(path):
        raise typer.BadParameter(f"--out {out} is the spec itself: name another file")
    out.write_text(text)
    output.lines([f"wrote {output.count(len(read.machines), 'host')} to {out}"])
    return ExitCode.OK
