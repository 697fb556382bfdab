"""`bringup`: the command line. Finds the command, and turns every error into one sentence, a hint and an exit code."""

import os
import sys
import traceback

import click
import typer

from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.spec_commands import register as register_spec

INTERRUPTED = 130
"""What shells expect of a program ended by Ctrl-C."""


def application() -> typer.Typer:
    """All commands; modules are imported here, heavy ones inside the commands."""
    app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_options)
    register_spec(app)
    return app


def _options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show a traceback with an error."),
    version: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True),
) -> None:
    """Turn racked Linux machines into an accepted GPU/HPC platform, and rehearse it first."""
    context.obj = {"debug": debug}
    if version:
        from steps import __version__

        print(f"bringup {__version__}")
        raise typer.Exit


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return int(application()(args=arguments, standalone_mode=False, prog_name="bringup") or 0)
    except click.UsageError as problem:
        usage = problem.ctx.get_usage() if problem.ctx else ""
        output.error(problem.format_message(), usage)
        return ExitCode.USAGE
    except click.ClickException as problem:
        output.error(problem.format_message())
        return ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        output.error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output is gone: nothing more to say
        return ExitCode.OK
    except Exception as problem:  # noqa: BLE001 - the outermost edge
        return _failed(problem, "--debug" in arguments)


def _failed(problem: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(problem)
    code = getattr(problem, "exit_code", None)
    if code is None and isinstance(problem, ValueError) and type(problem) is not ValueError:
        code = ExitCode.USAGE  # our own ValueErrors are about what somebody gave us
    if code is None:
        output.error(
            f"bug: {type(problem).__name__}: {problem}", "" if debug else "run again with --debug and report the traceback"
        )
        return ExitCode.BUG
    output.error(str(problem), getattr(problem, "hint", ""))
    return int(code)
