"""Function calls in Linux namespaces of their own (mounts, processes, network), over an overlay of image layers.

    packed = namespace.call(stack, "steps.nodeimage.files.root_packing:pack", Pack(...), Packed, seconds=600)

calls `root_packing.pack(root, arguments)` in a child process, where `root` is the folder with the merged layers (read-only without
`upper`), and returns its result.

The function is root over all files of the layers, also if this process is not (a user namespace with subordinate ids). It has no
network but loopback, and `TMPDIR` is a tmpfs that goes with the namespace. Lines that it prints come back through `say`. When the
call ends, even by `kill -9` of the caller, all its processes are killed and nothing stays mounted.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec
from msgspec import Struct

from steps import errors, timeouts
from steps.contract.canonical import UNREADABLE_JSON
from steps.errors import BadTask, StepError, Temporary
from steps.nodeimage import kernel_calls
from steps.nodeimage.containment import id_ranges

R = TypeVar("R")

TAIL: Final = 40
"""Number of output lines that an error keeps."""
_ROOT: Final = Path(__file__).parents[3]


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Request of the builder to the child process that works in namespaces: the function, its encoded arguments, the layers.

    `caller` is the builder's process id.
    """

    caller: int
    stack: tuple[str, ...]
    function: str
    arguments: msgspec.Raw
    upper: str = ""
    ids: id_ranges.Identities | None = None


class Problem(Struct, frozen=True, kw_only=True):
    """Error that the child process raised: the name of its class, its message and its hint."""

    kind: str
    message: str
    hint: str = ""


class Reply(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Answer of the child process that works in namespaces: the function's encoded result, or the error."""

    value: msgspec.Raw = msgspec.Raw(b"")
    problem: Problem | None = None


def call(
    stack: tuple[Path, ...],
    function: str,
    arguments: Struct,
    kind: type[R],
    *,
    upper: Path | None = None,
    seconds: float,
    say: Callable[[str], None] | None = None,
) -> R:
    """Call the function `module:name` with (root, arguments) over the layers `stack` (uppermost first) and return its result.

    Changes of the root go to the folder `upper`, if given; beside it lies a folder `work` afterwards, which the caller removes.
    Without layers and `upper` nothing is mounted, and `root` is `/`. Errors of `steps.errors` are raised again here. Raises BadTask
    if this machine gives us no namespaces (the sentence names the setting), Temporary after `seconds`.
    """
    request = Request(
        caller=os.getpid(),
        stack=tuple(str(folder.absolute()) for folder in stack),
        function=function,
        arguments=msgspec.Raw(msgspec.json.encode(arguments)),
        upper=str(upper.absolute()) if upper else "",
        ids=id_ranges.choose(),
    )
    with _held(stack):
        answer, output = _converse(msgspec.json.encode(request), function, seconds, say)
    return msgspec.json.decode(_value(answer, output, function), type=kind)


def tell(line: str) -> None:
    """Print a line from inside a `call`; the caller gets it at once through its `say`."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _value(answer: bytes, output: deque[str], function: str) -> msgspec.Raw:
    try:
        reply = msgspec.json.decode(answer, type=Reply)
    except UNREADABLE_JSON as error:
        raise StepError(f"{function} ended without an answer: {' | '.join(output) or 'it said nothing'}") from error
    if reply.problem is None:
        return reply.value
    raise getattr(errors, reply.problem.kind, StepError)(reply.problem.message, hint=reply.problem.hint)


@contextlib.contextmanager
def _held(stack: Iterable[Path]) -> Iterator[None]:
    """Hold a shared lock on each layer, so that garbage collection removes none meanwhile. Raises BadTask if a layer is gone."""
    with contextlib.ExitStack() as handles:
        for folder in stack:
            try:
                handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                handles.callback(os.close, handle)
                fcntl.flock(handle, fcntl.LOCK_SH)
                # it may have been removed, and even built anew, before it was locked
                is_gone = not os.path.samestat(os.fstat(handle), folder.stat())
            except FileNotFoundError:
                is_gone = True
            if is_gone:
                raise BadTask(f"layer {folder} is gone", hint="build the image's layers again")
        yield


def _converse(request: bytes, function: str, seconds: float, say: Callable[[str], None] | None) -> tuple[bytes, deque[str]]:
    """Start the child process, send it the request, and return its answer (stdout) and its last output lines (stderr)."""
    output: deque[str] = deque(maxlen=TAIL)
    with _child() as (child, stdin, stdout, stderr):
        reader = threading.Thread(target=_listen, args=(stderr, output, say), daemon=True)
        late = threading.Timer(seconds, child.kill)
        reader.start()
        late.start()
        try:
            with contextlib.suppress(BrokenPipeError):  # a child that ended early is told by its missing answer
                stdin.write(request)
                stdin.close()
            answer = stdout.read()
            child.wait()
        finally:
            over = late.finished.is_set()  # before `cancel`, which sets it too
            late.cancel()
        reader.join()
    if over and not answer:
        raise Temporary(f"{function} took longer than {seconds:.0f} s: {' | '.join(list(output)[-3:]) or 'it said nothing'}")
    return answer, output


@contextlib.contextmanager
def _child() -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes], IO[bytes], IO[bytes]]]:
    """Run the child process until the block ends; the kernel kills it if this process is killed."""
    child = subprocess.Popen(
        [sys.executable, "-P", "-m", "steps.nodeimage.containment.namespace_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        cwd="/",
    )
    try:
        if child.stdin is None or child.stdout is None or child.stderr is None:
            raise BadTask("no pipes to a child process")
        with child.stdin, child.stdout, child.stderr:
            yield child, child.stdin, child.stdout, child.stderr
    finally:
        child.kill()
        child.wait()


def _environment() -> dict[str, str]:
    """Return the environment of the child process, equal for all users, so that no user's settings get into an image."""
    before = os.environ.get("PYTHONPATH", "")
    return {
        "PATH": f"{os.environ.get('PATH', os.defpath)}:/usr/local/sbin:/usr/sbin:/sbin",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *([before] if before else [])]),
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "HOME": "/root",
    }


def _listen(stream: IO[bytes], output: deque[str], say: Callable[[str], None] | None) -> None:
    for raw in stream:
        line = raw.decode(errors="replace").rstrip()
        output.append(line)
        if say is not None:
            say(line)


class FolderArgument(Struct, frozen=True):
    """Argument of a function for `call` that works on one folder of this machine, given by its absolute path."""

    folder: str


def remove_folder(folder: Path) -> None:
    """Remove a folder with its content, also if files belong to subordinate ids of the user; a missing folder is no error."""
    if not folder.exists():
        return
    if kernel_calls.may_mount():
        shutil.rmtree(folder)
    else:
        call((), f"{__name__}:remove_inside", FolderArgument(str(folder.absolute())), bool, seconds=timeouts.IMAGE_READ)


def remove_inside(root: Path, doomed: FolderArgument) -> bool:
    """Remove a folder as root of a user namespace; only `remove_folder` calls it, through `call`."""
    shutil.rmtree(root / doomed.folder)
    return True
