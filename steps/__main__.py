"""Run one task: read its task file, store one evidence record, and report the outcome by the exit code."""

import argparse
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import NoReturn

from steps.clients import output_log
from steps.contract.exit import ExitCode
from steps.contract.task import TaskError, Verb, decode
from steps.errors import BadTask, StepError

INTERRUPTED = 130
"""Exit code after SIGINT, as shells report it."""


class _Parser(argparse.ArgumentParser):
    """An argument parser whose usage errors exit with 64, never with argparse's own 2."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(ExitCode.USAGE, f"{self.prog}: {message}\n")


def main(arguments: list[str] | None = None) -> int:
    """Run one verb and return the exit code, which the type of the error decides.

    Errors go to stderr as one sentence and a hint. All output of this process and its children passes through the log, which
    redacts secrets and is kept in the store.
    """
    with output_log.RedirectedOutput(os.environ) as log:
        options = argument_parser().parse_args(arguments)
        try:
            return int(_run(options, log))
        except StepError as error:
            log.write(f"{options.verb}: {error}\n" + (f"hint: {error.hint}\n" if error.hint else ""))
            return int(error.exit_code)
        except KeyboardInterrupt:
            log.write(f"{options.verb}: interrupted\n")
            return INTERRUPTED
        except Exception as error:  # noqa: BLE001 - the outermost edge: a bug must end with its own code and a traceback in the log
            import traceback  # imported here: only a bug needs it

            log.write(f"{traceback.format_exc()}{options.verb}: bug: {type(error).__name__}: {error}\n")
            return int(ExitCode.BUG)


def argument_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(prog="python -m steps", description=__doc__)
    parser.add_argument("verb", choices=[verb.value for verb in Verb])
    parser.add_argument("--task", type=Path, required=True, help="task file; a bare name lies in the tasks folder")
    parser.add_argument("--shard", type=int, default=0, help="number of the shard of hosts to work on")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=VALUE", help="an input parameter of the workflow")
    return parser


def _run(options: argparse.Namespace, log: output_log.Log) -> ExitCode:
    from steps.clients import environment
    from steps.runtime.context import Context

    here = environment.read()
    path = options.task if options.task.is_absolute() or options.task.exists() else here.tasks / options.task
    try:
        task = decode(path.read_bytes())
    except (OSError, TaskError) as error:
        raise BadTask(f"{path}: {error}") from error
    if task.verb.value != options.verb:
        raise BadTask(f"{path} is a task for verb {task.verb.value}, not {options.verb}")
    # the task may have been rendered by a version with other verbs
    if importlib.util.find_spec(f"steps.verbs.{task.verb.value}") is None:
        raise BadTask(f"verb {task.verb.value} is not in this version", hint="render with the version that runs the steps")
    module = importlib.import_module(f"steps.verbs.{task.verb.value}")
    context = Context(task, here, options.shard, _inputs(options.input), log)
    log.at_end = context.keep_log
    context.say(f"{task.verb.value} {task.stage}.{task.name} shard {options.shard} of run {here.run}: input {task.input_digest}")
    try:
        code: ExitCode = module.run(context)
    except StepError as error:
        from steps.runtime import diagnose  # imported here: only a failed task needs it

        diagnose.record_error(context, error)
        raise
    return code


def _inputs(pairs: list[str]) -> dict[str, str]:
    if bad := [pair for pair in pairs if "=" not in pair]:
        raise BadTask(f"--input {bad[0]!r} is not NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


if __name__ == "__main__":
    sys.exit(main())
