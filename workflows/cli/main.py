"""`bringup`: the command line. Finds the command, and turns every error into one sentence, a hint and an exit code."""

import errno
import os
import sys
import traceback
from typing import cast

import typer

from steps import __version__
from steps.contract.exit import ExitCode
from workflows.cli import output
from workflows.cli.report_commands import register as register_report
from workflows.cli.run_commands import register as register_run
from workflows.cli.spec_commands import register as register_spec
from workflows.cli.tool_commands import register as register_tools

_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])
"""typer exports BadParameter alone; its base covers unknown commands, options and missing arguments as well."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""A disk that may have room again: temporary."""

INTERRUPTED = 130
"""What shells expect of a program ended by Ctrl-C."""


def application() -> typer.Typer:
    """All commands; modules are imported here, heavy ones inside the commands."""
    app = typer.Typer(no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback()(_options)
    for register in (register_spec, register_run, register_report, register_tools):
        register(app)
    return app


def _version(wanted: bool) -> None:
    if wanted:
        print(f"bringup {__version__}")
        raise typer.Exit


def _options(
    context: typer.Context,
    debug: bool = typer.Option(False, "--debug", help="Show a traceback with an error."),
    _: bool = typer.Option(False, "--version", help="Print the version and stop.", is_eager=True, callback=_version),
) -> None:
    """Turn racked Linux machines into an accepted GPU/HPC platform, and rehearse it first."""
    context.obj = {"debug": debug}


def main() -> None:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        return int(application()(args=arguments, standalone_mode=False, prog_name="bringup") or 0)
    except _UsageError as problem:
        output.error(_said(problem), f"bringup {arguments[0]} --help" if arguments else "bringup --help")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        output.error("interrupted")
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of our output is gone: nothing more to say
        return ExitCode.OK
    except Exception as problem:  # noqa: BLE001 - the outermost edge
        return _failed(problem, "--debug" in arguments)


def _said(problem: typer.BadParameter) -> str:
    """What is wrong with the command line; our own sentences as they are, without "Invalid value"."""
    ours = isinstance(problem, typer.BadParameter) and problem.param is None
    return problem.message if ours else problem.format_message()


def _failed(problem: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(problem)
    if isinstance(problem, OSError) and (problem.filename or problem.errno in _FULL):
        output.error(
            f"{problem.filename or 'cannot write'}: {problem.strerror}",
            "runs lie in BRINGUP_HOME: choose a folder with room",
        )
        return ExitCode.TEMPORARY if problem.errno in _FULL else ExitCode.USAGE
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
