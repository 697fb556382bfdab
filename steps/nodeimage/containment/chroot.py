"""Programs that run in the root file system being built, with the few devices, folders and settings that package scripts expect.

None of these folders gets into a layer: /dev, /proc, /run and /tmp are mounts of the namespace. The programs have no network, no
settings of this machine, and no secrets but those for their command.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from steps.nodeimage import kernel_calls

OURS: Final = "run/bringup"
"""Folder in the root for files of the builder; /run is a tmpfs."""
SECRETS: Final = "run/secrets"
TAIL: Final = 4000
"""Number of last characters of a program's output that are kept."""
_READ: Final = 1 << 20
"""Bytes at the end of a long output that are read."""
_DEVICES: Final = ("full", "null", "random", "tty", "urandom", "zero")
_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_STAND_IN: Final = "#!/bin/sh\n# stands in while a layer is built: initial RAM disks are made when an image is packed\nexit 0\n"
# 101 means "action forbidden by policy" to invoke-rc.d
_NO_SERVICES: Final = "#!/bin/sh\n# while an image is built no service is started\nexit 101\n"


class ProgramEnd(Struct, frozen=True, kw_only=True):
    """Result of a program that `run` or `outside` ran: its exit code, and the end of its output if it failed."""

    code: int
    output: str


def environment(epoch: int) -> dict[str, str]:
    """Return the environment of every program in the root; `epoch` is the time (UTC seconds) that build tools write into files."""
    return {
        "PATH": f"/{OURS}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONHASHSEED": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBCONF_NONINTERACTIVE_SEEN": "true",
        # the kernel packages' hook of initramfs-tools then makes no initrd, as `_STAND_IN` does not
        "INITRD": "No",
    }


def prepare(root: Path) -> None:
    """Mount /dev, /proc, /run and /tmp in the root for the programs that will run there."""
    for name, mode in (("dev", 0o755), ("proc", 0o555), ("run", 0o755), ("sys", 0o555), ("tmp", 0o1777)):
        if not (root / name).is_dir():
            (root / name).mkdir(parents=True)
            (root / name).chmod(mode)
    for name, options in (("dev", "mode=0755"), ("run", "mode=0755"), ("tmp", "mode=1777")):
        kernel_calls.mount("tmpfs", root / name, "tmpfs", kernel_calls.NOSUID, options)
    _devices(root / "dev")
    kernel_calls.mount("/proc", root / "proc", "", kernel_calls.BIND | kernel_calls.REC)
    _script(root / OURS / "bin" / "update-initramfs", _STAND_IN)
    (root / "run" / "lock").mkdir()


def _devices(folder: Path) -> None:
    """Bind this machine's device files into the folder, because a user namespace may not make device files."""
    for name in _DEVICES:
        (folder / name).touch()
        kernel_calls.mount(f"/dev/{name}", folder / name, "", kernel_calls.BIND)
    for name in ("pts", "shm"):
        (folder / name).mkdir()
    kernel_calls.mount(
        "devpts", folder / "pts", "devpts", kernel_calls.NOSUID | kernel_calls.NOEXEC, "newinstance,ptmxmode=0666,mode=0620"
    )
    kernel_calls.mount("tmpfs", folder / "shm", "tmpfs", kernel_calls.NOSUID | kernel_calls.NODEV, "mode=1777")
    for name, target in _LINKS.items():
        (folder / name).symlink_to(target)


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@contextlib.contextmanager
def without_services(root: Path) -> Iterator[None]:
    """Keep packages that are installed within this block from starting services, by a policy-rc.d that forbids it."""
    path = Path("/usr/sbin/policy-rc.d")
    with enter(root):
        path.unlink(missing_ok=True)  # never through a link
        _script(path, _NO_SERVICES)
    try:
        yield
    finally:
        with enter(root):
            path.unlink(missing_ok=True)


def run(root: Path, command: Sequence[str], settings: Mapping[str, str], redact: Callable[[bytes], bytes] = bytes) -> ProgramEnd:
    """Run a program in the root and return its end; processes that it leaves running are killed.

    `redact` removes secrets from the whole output before that is cut, because half of a secret would not be found.
    """
    return outside(["chroot", str(root), *command], settings, redact)


def outside(command: Sequence[str], settings: Mapping[str, str], redact: Callable[[bytes], bytes] = bytes) -> ProgramEnd:
    """Run a program of this machine, such as apt for the root, and return its end; processes that it leaves running are killed."""
    with tempfile.TemporaryFile() as output:  # no pipe: what a script left running would hold it open
        done = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=dict(settings), check=False
        )
        end_others()
        return ProgramEnd(code=done.returncode, output=_end(output, redact) if done.returncode else "")


def _end(output: IO[bytes], redact: Callable[[bytes], bytes]) -> str:
    """Return the last TAIL characters of an output without secrets.

    Of a long one the first half read is dropped: it may cut a secret.
    """
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _READ))
    data = output.read()
    skipped = len(redact(data[: _READ // 2])) if size > _READ else 0
    return redact(data)[skipped:].decode(errors="replace")[-TAIL:]


def end_others() -> None:
    """Kill every other process of the PID namespace, whose first process is this one."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


@contextlib.contextmanager
def enter(root: Path) -> Iterator[None]:
    """Make the root this process's `/` within the block, so that no link in it can lead a path outside."""
    before = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chroot(root)
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.chroot(".")
        os.close(before)
