"""Runs programs in the root that is being made: with the few devices, folders and settings that scripts of packages expect.

Nothing of it gets into a layer: /dev, /proc, /run and /tmp are mounts of the namespace. Programs in there see no network, no secret
but those handed to them, and no settings of this machine.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from msgspec import Struct

from steps.clients.image.contained import kernel
from steps.clients.image.layer import build_secrets

OURS: Final = "run/bringup"
"""Folder in the root for what the builder brings along; /run is a tmpfs."""
SECRETS: Final = "run/secrets"
TAIL: Final = 4000
"""Characters of a program's output that are kept."""
_READ: Final = 1 << 20
"""Bytes of a longer output that are looked at."""
_DEVICES: Final = ("full", "null", "random", "tty", "urandom", "zero")
_LINKS: Final = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"}
_STAND_IN: Final = "#!/bin/sh\n# stands in while a layer is built: initial RAM disks are made when an image is packed\nexit 0\n"
_NO_SERVICES: Final = "#!/bin/sh\n# while an image is built no service is started\nexit 101\n"


class Ended(Struct, frozen=True, kw_only=True):
    """How a program ended: its code, and the end of what it said if it failed."""

    code: int
    output: str


def environment(epoch: int) -> dict[str, str]:
    """What every program in the root sees. SOURCE_DATE_EPOCH: the tools that know it write no other time."""
    return {
        "PATH": f"/{OURS}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "SOURCE_DATE_EPOCH": str(epoch),
        "PYTHONHASHSEED": "0",
        "DEBIAN_FRONTEND": "noninteractive",
        "DEBCONF_NONINTERACTIVE_SEEN": "true",
        "INITRD": "No",
    }


def prepare(root: Path) -> None:
    """Mount what programs in the root need."""
    for name, mode in (("dev", 0o755), ("proc", 0o555), ("run", 0o755), ("sys", 0o555), ("tmp", 0o1777)):
        _folder(root / name, mode)
    for name, options in (("dev", "mode=0755"), ("run", "mode=0755"), ("tmp", "mode=1777")):
        kernel.mount("tmpfs", root / name, "tmpfs", kernel.NOSUID, options)
    _devices(root / "dev")
    kernel.mount("/proc", root / "proc", "", kernel.BIND | kernel.REC)
    _script(root / OURS / "bin" / "update-initramfs", _STAND_IN)
    (root / "run" / "lock").mkdir()


def _folder(path: Path, mode: int) -> None:
    if not path.is_dir():
        path.mkdir(parents=True)
        path.chmod(mode)


def _devices(folder: Path) -> None:
    """Devices of this machine: a user namespace may not make its own."""
    for name in _DEVICES:
        (folder / name).touch()
        kernel.mount(f"/dev/{name}", folder / name, "", kernel.BIND)
    for name in ("pts", "shm"):
        (folder / name).mkdir()
    kernel.mount("devpts", folder / "pts", "devpts", kernel.NOSUID | kernel.NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
    kernel.mount("tmpfs", folder / "shm", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=1777")
    for name, target in _LINKS.items():
        (folder / name).symlink_to(target)


def _script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@contextlib.contextmanager
def without_services(root: Path) -> Iterator[None]:
    """Packages that are installed in this block start no service."""
    path = Path("/usr/sbin/policy-rc.d")
    with entered(root):
        path.unlink(missing_ok=True)  # never through a link
        _script(path, _NO_SERVICES)
    try:
        yield
    finally:
        with entered(root):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def with_secrets(root: Path, secrets: Mapping[str, build_secrets.Noted]) -> Iterator[None]:
    """Hidden secrets as files at /run/secrets, in a tmpfs that goes with this block, with everything that still runs."""
    folder = root / SECRETS
    if not secrets:
        yield
        return
    folder.mkdir()
    kernel.mount("tmpfs", folder, "tmpfs", kernel.NOSUID | kernel.NODEV | kernel.NOEXEC, "mode=0700")
    try:
        with build_secrets.shown(secrets):
            for name, noted in secrets.items():
                shutil.copyfile(noted.path, folder / name)  # by the kernel: the bytes do not get into this process
                (folder / name).chmod(0o400)
        yield
    finally:
        end_others()
        kernel.unmount(folder)
        folder.rmdir()


def run(root: Path, command: Sequence[str], settings: Mapping[str, str], redact: Callable[[bytes], bytes] = bytes) -> Ended:
    """Run a program in the root; what it leaves running ends with it. `redact` takes secrets out of what it said, before that is
    cut: half of a secret would not be found."""
    return outside(["chroot", str(root), *command], settings, redact)


def outside(command: Sequence[str], settings: Mapping[str, str], redact: Callable[[bytes], bytes] = bytes) -> Ended:
    """Run a program of this machine on the root; what it leaves running ends with it."""
    with tempfile.TemporaryFile() as said:  # no pipe: what a script left running would hold it open
        done = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=dict(settings), check=False
        )
        end_others()
        return Ended(code=done.returncode, output=_end(said, redact) if done.returncode else "")


def _end(said: IO[bytes], redact: Callable[[bytes], bytes]) -> str:
    """The end of an output. Of a long one the last part is looked at, and its first half left out: a secret may be cut there."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _READ))
    data = said.read()
    left_out = len(redact(data[: _READ // 2])) if size > _READ else 0
    return redact(data)[left_out:].decode(errors="replace")[-TAIL:]


def end_others() -> None:
    """End every other process of the namespace, of which this one is the first."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)


@contextlib.contextmanager
def entered(root: Path) -> Iterator[None]:
    """Have this process itself see the root as `/`: no link in it can lead a path out of it."""
    before = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        os.chroot(root)
        os.chdir("/")
        yield
    finally:
        os.fchdir(before)
        os.chroot(".")
        os.close(before)
