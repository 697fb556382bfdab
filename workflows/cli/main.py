"""The command line `bringup`: find the command, and turn every error into one sentence, a hint and an exit code."""

import errno
import functools
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import typer
import typer.main

from steps import __version__
from steps.contract.exit import ExitCode
from workflows.app.run_options import UsageError
from workflows.cli import (
    accept,
    gitops_commands,
    host_key_commands,
    operation_commands,
    output,
    quarantine_commands,
    reading_commands,
    report_commands,
    run_commands,
    schedule_commands,
    spec_commands,
    streams,
    tool_commands,
)
from workflows.cli.command_sections import SectionedGroup
from workflows.cli.factories import commands as factory_commands
from workflows.cli.images import commands as image_commands
from workflows.cli.stacks import commands as stack_commands
from workflows.engines.folders import NoStateFolder, StateFolder

_UsageError = cast(type[typer.BadParameter], typer.BadParameter.__bases__[0])
"""Base class of typer's usage errors, which typer does not export; unknown commands and missing arguments raise it too."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""Error numbers of a full or failing disk: temporary, because it may have room again later."""

_HINTS = {
    errno.EISDIR: "that is a folder: name a file",
    errno.ENOTDIR: "a file stands where a folder is needed: name another path",
    errno.EEXIST: "a file of that name is there: name another path",
    errno.EACCES: "this user may not do that there: name another file or folder, or change its rights",
    errno.EPERM: "this user may not do that there: name another file or folder, or change its rights",
    errno.EROFS: "that file system cannot be written to: name another file or folder",
}


INTERRUPTED = 130
"""Exit code that shells expect of a program ended by Ctrl-C."""
FOLLOWING = frozenset({"watch", "logs"})
"""Commands that say themselves, at Ctrl-C, how the run goes on."""
STARTING = frozenset(
    (
        *("rehearse", "run", "resume", "add-node", "replace-node", "upgrade", "rollback", "reset", "accept"),
        *("image build", "stack build", "factory up", "factory down", "factory rebuild"),
    )
)
"""Commands that start runs."""


def application() -> typer.Typer:
    """Return the typer application with all commands. Light modules are imported here, heavy ones inside the commands."""
    app = typer.Typer(
        cls=SectionedGroup, no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None
    )
    app.callback()(_options)
    for commands in (
        spec_commands,
        host_key_commands,
        run_commands,
        operation_commands,
        accept,
        report_commands,
        quarantine_commands,
        reading_commands,
        gitops_commands,
        tool_commands,
        image_commands,
        stack_commands,
        factory_commands,
        schedule_commands,
    ):
        commands.register(app)
    return app


@functools.cache
def command_tree() -> Callable[..., Any]:
    """Return the application as one parsed tree of commands, which can run any number of command lines.

    Building it from the signatures of all commands takes longer than most commands take.
    """
    return typer.main.get_command(application())


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
    """Run the command line of this process and exit with its code."""
    streams.begin()
    code = run(sys.argv[1:])
    streams.finish()
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        # in standalone mode typer would print errors itself and end the process
        code = int(command_tree()(args=arguments, standalone_mode=False, prog_name="bringup") or 0)
    except _UsageError as problem:
        return _misused(problem, arguments)
    except UsageError as problem:
        output.error(str(problem), f"{_command_path(arguments)} --help")
        return ExitCode.USAGE
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except BrokenPipeError:
        streams.drop(sys.stdout)  # the reader of the output is gone
        return ExitCode.OK
    except Exception as problem:  # noqa: BLE001 - the outermost edge
        return _failed(problem, "--debug" in arguments)
    if code == INTERRUPTED:  # typer turns Ctrl-C within a command into this code
        _interrupted(arguments)
    return code


def _interrupted(arguments: list[str]) -> None:
    """Print that a command was interrupted and how to go on. A run's engine tells by itself how it ended, if it had begun."""
    command = _command_path(arguments).removeprefix("bringup ")
    if command in STARTING:
        on = "is started again by the same command" if command == "rehearse" else "goes on with `bringup resume RUN`"
        hint = f"`bringup runs` lists what has begun, which {on}; what is not listed changed nothing"
        output.error("interrupted", hint)
    elif command not in FOLLOWING:
        output.error("interrupted", "the same command begins anew; what it printed as done is done")


def _misused(problem: typer.BadParameter, arguments: list[str]) -> int:
    """Print the error of an unusable command line and return 64; for a group without a command print its help and return 0."""
    context = problem.ctx
    if context is not None and problem.message == context.get_help():
        output.lines([problem.message])
        return ExitCode.OK
    command = context.command_path if context else " ".join(["bringup", *arguments[:1]])
    # bringup's own sentences stay without "Invalid value"
    ours = isinstance(problem, typer.BadParameter) and problem.param is None
    # typer lets pydantic parse choices, and pydantic puts its own words before the message
    sentence = problem.message if ours else problem.format_message().replace(": Value error, ", ": ", 1)
    output.error(sentence, f"{command} --help")
    return ExitCode.USAGE


def _command_path(arguments: list[str]) -> str:
    """Return the command that a command line names, without arguments, such as `bringup image build`."""
    command, path = command_tree(), ["bringup"]
    for word in arguments:
        commands = getattr(command, "commands", {})
        if word in commands:
            command = commands[word]
            path.append(word)
        elif not word.startswith("-"):
            break
    return " ".join(path)


def _failed(problem: Exception, debug: bool) -> int:
    if debug:
        traceback.print_exception(problem)
    if isinstance(problem, OSError) and (problem.filename or problem.errno in _FULL):
        output.error(f"{problem.filename or 'cannot write'}: {problem.strerror}", _hint(problem))
        return ExitCode.TEMPORARY if problem.errno in _FULL else ExitCode.USAGE
    code = getattr(problem, "exit_code", None)
    if code is None and isinstance(problem, ValueError) and type(problem) is not ValueError:
        code = ExitCode.USAGE  # bringup's subclasses of ValueError are about the user's input
    if code is None:
        output.error(
            f"bug: {type(problem).__name__}: {problem}", "" if debug else "run again with --debug and report the traceback"
        )
        return ExitCode.BUG
    output.error(str(problem), getattr(problem, "hint", ""))
    return int(code)


def _hint(problem: OSError) -> str:
    """Return the hint for a file error: choose another BRINGUP_HOME if the file is a run's, else a hint by error number."""
    if not problem.filename:
        return "make room where this output goes, or where runs lie (BRINGUP_HOME)"
    path = Path(os.fsdecode(problem.filename))
    if _is_at_home(path.absolute()) or problem.errno in _FULL:
        return "runs lie in BRINGUP_HOME: choose a folder with room that you may write to"
    if problem.errno == errno.ENOENT:
        has_folder = path.parent.is_dir()
        return (
            "name a file that is there, or a folder that takes new files"
            if has_folder
            else "its folder is not there: make it, or name another path"
        )
    return _HINTS.get(problem.errno or 0, "name another file or folder")


def _is_at_home(path: Path) -> bool:
    """Return True if the file lies below BRINGUP_HOME, or is a parent of it that cannot be created."""
    try:
        home = StateFolder.of_environment().root
    except NoStateFolder:
        return False
    return path.is_relative_to(home) or (home.is_relative_to(path) and not path.is_dir())
