"""The command group `bringup gitops`: GitOps trees, ours or a user's own."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.output import Format


class CheckFormat(StrEnum):
    """Forms of a check: those of all commands, and Markdown for a merge request."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    MARKDOWN = "markdown"


CheckOutput = Annotated[CheckFormat, typer.Option("--output", "-o", help="Form of the output.")]


def register(app: typer.Typer) -> None:
    """Add the group `gitops` with its commands to the application."""
    gitops = typer.Typer(no_args_is_help=True, cls=SectionedGroup)
    gitops.command(name="check")(check)
    # typer would make a command of a group's only one
    gitops.callback()(_group)
    app.add_typer(gitops, name="gitops", help="Check trees that Argo CD delivers from.")


def _group() -> None:
    """Check trees that Argo CD delivers from."""


def check(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Checkout of a repository, or a folder of it.")],
    against: Annotated[
        str,
        typer.Option(
            "--against", metavar="REV|DIR", help="Also say what a sync from this state would restart, and which jobs end."
        ),
    ] = "",
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the findings for CI servers to this file.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings fail too.")] = False,
    form: CheckOutput = CheckFormat.TABLE,
) -> int:
    """Check a tree of Argo CD Applications, Helm charts, kustomizations and manifests for traps, before a sync meets them.

    Charts are rendered with helm where it is installed. No cluster is asked, and nothing is downloaded. The exit code is 65 if
    there are errors, or warnings with --strict.
    """
    from workflows.app.gitops_trees import checkout_check
    from workflows.gitops_check import check_documents

    result = checkout_check.check(folder, against)
    if junit is not None:
        junit.write_bytes(check_documents.junit(result, strict=strict))
    if form is CheckFormat.MARKDOWN:
        output.lines(check_documents.markdown(result, checkout_check.summary(result)))
    elif form is not CheckFormat.TABLE:
        output.data(check_documents.data(result), Format(form.value))
    else:
        rows = [(e.severity, e.failure_class, e.rule, e.place, e.problem, e.value, e.fix) for e in result.findings]
        if rows:
            output.table(("severity", "class", "rule", "where", "problem", "value", "fix"), rows)
        output.prose(checkout_check.sentences(result))
    return ExitCode.GATE_FAILED if result.errors or (strict and result.findings) else ExitCode.OK
