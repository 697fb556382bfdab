"""Child process of `namespace.call`: makes the namespaces, mounts the layers, calls the function, and answers.

There are two processes: the outer one makes the namespaces and waits, the inner one is the first process in them. The kernel kills
each of them with its parent, and everything else in the namespace with the inner one.
"""

import importlib
import os
import select
import shutil
import signal
import subprocess
import sys
import traceback
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from steps.errors import BadTask, StepError
from steps.nodeimage import kernel_calls
from steps.nodeimage.containment import namespace
from steps.nodeimage.containment.id_ranges import Identities
from steps.nodeimage.containment.namespace import Problem, Reply, Request
from steps.nodeimage.store import store_entries

HOST_NAME: Final = b"image"
"""Host name that scripts of packages see, equal on every machine."""

_OVERLAYS: Final = "keep the store on a local file system (ext4, xfs, btrfs), no overlay or NFS; users need Linux 5.11"
_LONGEST: Final = 500
"""Characters that are kept of an unexpected error."""
_LISTS: Final = ("system.posix_acl_access", "system.posix_acl_default")
"""Extended attributes that hold a folder's POSIX access lists."""
_OTHER_GROUP: Final = 1
"""A group id of the image that differs from its root's."""


def main() -> int:
    """Read the request from stdin, answer on stdout, and return the exit code; all other output goes to stderr."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    answers = os.dup(1)
    os.dup2(2, 1)
    os.umask(0o022)  # rights in an image are not the caller's habit
    kernel_calls.die_with_parent(signal.SIGKILL)
    # the caller may have died before the kernel knew that this process goes with it
    if os.getppid() != request.caller:
        return 1
    reading, writing = os.pipe()
    try:
        _enter(request.ids)
    except StepError as error:
        _answer(answers, Reply(problem=_problem(error)))
        return 1
    # `unshare` puts only later children into the new PID namespace
    inner = os.fork()
    if inner == 0:
        os.close(writing)
        kernel_calls.die_with_parent(signal.SIGKILL)
        if select.select([reading], [], [], 0)[0]:
            os._exit(1)  # the outer one was gone before the kernel knew that we go with it
        _answer(answers, _called(request))
        os._exit(0)
    _, status = os.waitpid(inner, 0)
    return 0 if status == 0 else 1


def _answer(answers: int, reply: Reply) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    with os.fdopen(answers, "wb") as stream:
        stream.write(msgspec.json.encode(reply))


def _enter(identities: Identities | None) -> None:
    spaces = kernel_calls.NEW_NS | kernel_calls.NEW_PID | kernel_calls.NEW_IPC | kernel_calls.NEW_UTS | kernel_calls.NEW_NET
    try:
        if identities is None:
            kernel_calls.unshare(spaces)
        else:
            _enter_as_user(identities, spaces)
    except OSError as error:
        raise BadTask(
            f"no namespaces to build an image in: {error.strerror}",
            hint="give the container SYS_ADMIN (privileged), or build as root",
        ) from error
    kernel_calls.die_with_parent(signal.SIGKILL)  # forgotten when the user changes


def _enter_as_user(identities: Identities, spaces: int) -> None:
    """Enter new namespaces, with a user namespace whose ids a helper outside writes by the setuid programs newuidmap, newgidmap."""
    target, go = str(os.getpid()), os.pipe()
    mapper = os.fork()
    if mapper == 0:
        os.close(go[1])
        # waits for `unshare`: before it there is no namespace whose ids could be mapped
        os.read(go[0], 1)
        commands = (["newuidmap", target, *identities.users.words], ["newgidmap", target, *identities.groups.words])
        os._exit(0 if all(subprocess.run(command, check=False).returncode == 0 for command in commands) else 1)
    os.close(go[0])
    try:
        kernel_calls.unshare(kernel_calls.NEW_USER | spaces)
    finally:
        os.write(go[1], b"1")
        os.close(go[1])
        status = os.waitpid(mapper, 0)[1]
    if status != 0:
        raise BadTask(
            "newuidmap or newgidmap refused the subordinate ids", hint="compare /etc/subuid and /etc/subgid with the user"
        )
    os.setgroups([])
    os.setresgid(0, 0, 0)
    os.setresuid(0, 0, 0)


def _called(request: Request) -> Reply:
    try:
        function, kind = _function(request.function)
        arguments = msgspec.json.decode(request.arguments, type=kind)
        with store_entries.guard_writes():
            value = function(_mounted(request), arguments)
        return Reply(value=msgspec.Raw(msgspec.json.encode(value)))
    except StepError as error:
        return Reply(problem=_problem(error))
    except OSError as error:
        return Reply(problem=Problem(kind="StepError", message=f"{request.function}: {error}: {_place(error)}"))
    except Exception as error:  # noqa: BLE001 - whatever it is, the caller must hear it
        return Reply(problem=Problem(kind="StepError", message=f"{request.function}: {repr(error)[:_LONGEST]}: {_place(error)}"))


def _problem(error: StepError) -> Problem:
    return Problem(kind=type(error).__name__, message=str(error), hint=error.hint)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames[-3:])


def _function(name: str) -> tuple[Callable[[Path, Any], Any], Any]:
    module, _, attribute = name.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BadTask(f"no function {name}: {error}") from error
    kinds = [kind for parameter, kind in typing.get_type_hints(function).items() if parameter != "return"]
    return function, kinds[1]


def _mounted(request: Request) -> Path:
    """Mount the request's layers, invisible to other processes, and return the folder with the merged root (`/` without layers)."""
    kernel_calls.mount("none", Path("/"), "", kernel_calls.REC | kernel_calls.PRIVATE)
    _own_processes()
    kernel_calls.host_name(HOST_NAME)
    kernel_calls.loopback_up()
    if not request.stack and not request.upper:
        return Path("/")
    return _overlay([Path(folder) for folder in request.stack], Path(request.upper) if request.upper else None)


def _own_processes() -> None:
    """Mount a /proc of this namespace; keep the builder's where that is forbidden, as in a container that hides parts of /proc."""
    try:
        kernel_calls.mount("proc", Path("/proc"), "proc", kernel_calls.NOSUID | kernel_calls.NODEV | kernel_calls.NOEXEC)
    except PermissionError:
        namespace.tell("note: this machine's /proc is not whole: programs see that of the builder")


def _overlay(stack: list[Path], upper: Path | None) -> Path:
    """Mount the merged root in a tmpfs over the uppermost folder, and return it. The machine then needs no folder as a mount point.

    Layers are named by open folders, because names may hold characters that mount options cannot. `userxattr`: root and user
    namespaces mark hidden entries alike. `volatile`: fsync is ignored; the builder flushes a layer once.
    """
    place = upper or stack[0]
    handles = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in stack]
    options = ["userxattr", "xino=off", "index=off"]
    if upper is not None:
        work = upper.with_name("work")
        shutil.rmtree(work, ignore_errors=True)  # of an earlier call: an overlay does not take it again
        work.mkdir()
        _own_rights(upper)
        _own_rights(work)
        _groups_apart(work)
        above, beside = (os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in (upper, work))
        options += [f"upperdir=/proc/self/fd/{above}", f"workdir=/proc/self/fd/{beside}", "volatile"]
    kernel_calls.mount("tmpfs", place, "tmpfs", kernel_calls.NOSUID | kernel_calls.NODEV, "mode=0755")
    for name in ("root", "empty", "tmp"):
        (place / name).mkdir()
    os.environ["TMPDIR"] = str(place / "tmp")
    handles.append(os.open(place / "empty", os.O_PATH | os.O_DIRECTORY))
    lower = ":".join(f"/proc/self/fd/{handle}" for handle in handles)
    flags = kernel_calls.RDONLY if upper is None else 0
    try:
        with store_entries.guard_writes():
            kernel_calls.mount("overlay", place / "root", "overlay", flags, ",".join([f"lowerdir={lower}", *options]))
    except OSError as error:
        raise BadTask(f"{place}: layers cannot be mounted over each other there: {error.strerror}", hint=_OVERLAYS) from error
    return place / "root"


def _own_rights(folder: Path) -> None:
    """Remove group, setgid and access lists that a folder has inherited, because files made below would inherit them too."""
    for name in _LISTS:
        if name in os.listxattr(folder):
            os.removexattr(folder, name)
    os.chown(folder, 0, 0)
    folder.chmod(0o755)


def _groups_apart(folder: Path) -> None:
    """Raise BadTask if the folder's file system gives new files the group of their folder, which would change an image's files."""
    os.chown(folder, 0, _OTHER_GROUP)
    probe = folder / "probe"
    probe.mkdir()
    inherits = probe.stat().st_gid == _OTHER_GROUP
    probe.rmdir()
    os.chown(folder, 0, 0)
    if inherits:
        raise BadTask(
            f"{folder.parent}: files made there get the group of their folder, and so would those of the image",
            hint="mount its file system without grpid (bsdgroups), or keep the store on another",
        )


if __name__ == "__main__":
    sys.exit(main())
