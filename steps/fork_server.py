"""Fork server (`python -m steps.fork_server`): forks steps from a process with all imports done, for engines that start many.

A step of a rehearsal takes a moment, and most of its CPU time would go into starting an interpreter and importing modules. A forked
step is an ordinary process with its own session, working folder and environment.
"""

import contextlib
import gc
import importlib
import os
import pkgutil
import signal
import socket
import sys

import msgspec

from steps.__main__ import argument_parser, main
from steps.contract.fork_request import LARGEST, ForkRequest
from steps.report import html
from steps.stages.shared import causes

PACKAGES = ("steps.verbs", "steps.runtime", "steps.stages")
LATER = ("encodings.idna", "http.client", "jinja2", "ssl", "traceback", "urllib3", "yaml")
"""Modules that steps import inside functions; imported before the first fork, too."""


def serve(connection: socket.socket) -> None:
    """Start a step for each request until the engine closes the connection."""
    _import_steps()
    gc.freeze()  # a garbage collection in a child would copy every memory page that it touches
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, LARGEST, 2)
        if not data:
            return
        pid = _fork(msgspec.json.decode(data, type=ForkRequest), descriptors, connection)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())


def _import_steps() -> None:
    for package in PACKAGES:
        folder = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(folder, f"{package}."):
            with contextlib.suppress(Exception):  # a step that needs this module will report the error
                importlib.import_module(module.name)
    for name in LATER:
        importlib.import_module(name)
    _prepare_decoders(msgspec.Struct)
    _prepare_patterns()
    html.page()  # each run writes a report, and most of its time would go into compiling the template


def _prepare_decoders(parent: type[msgspec.Struct]) -> None:
    """Have msgspec look at the fields of all types of steps: it keeps what it learns, and each step would begin anew."""
    for kind in parent.__subclasses__():
        if kind.__module__.startswith("steps."):
            with contextlib.suppress(Exception):  # a generic type, or one that is never decoded
                msgspec.json.Decoder(kind)
        _prepare_decoders(kind)


def _prepare_patterns() -> None:
    """Have `re` compile the patterns that most steps use: those of their command line and those that tell causes."""
    with contextlib.suppress(SystemExit):
        argument_parser().parse_args(["seal", "--task", "none"])
    for table in (causes.HELM, causes.ARGO_CD):
        causes.classify(table, [("log", "")])


def _fork(request: ForkRequest, descriptors: list[int], connection: socket.socket) -> int:
    """Fork a process that runs a step, and return its process id.

    The parent of the step ends at once, so that the kernel hands the step to the nearest subreaper: the engine, which waits for it.
    """
    reader, writer = os.pipe()
    between = os.fork()
    if between == 0:
        if os.fork() == 0:
            os.setsid()  # before the engine learns the pid, because it signals the whole process group
            os.write(writer, str(os.getpid()).encode())
            os.close(reader)
            os.close(writer)
            connection.close()
            os._exit(_step(request, descriptors))
        os._exit(0)
    os.close(writer)
    os.waitpid(between, 0)
    pid = int(os.read(reader, 32))
    os.close(reader)
    return pid


def _step(request: ForkRequest, descriptors: list[int]) -> int:
    """Run a step in this forked process, set up like a newly started one, and return its exit code."""
    stdout, stderr = descriptors
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in enumerate((nothing, stdout, stderr)):
        os.dup2(source, target)
    for descriptor in (nothing, stdout, stderr):
        os.close(descriptor)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    sys.argv = ["steps", *request.arguments]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code = main(request.arguments)
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    serve(socket.socket(fileno=int(sys.argv[1])))
