"""Sandbox by bubblewrap: a program runs in a read-only root file system, with no network and empty /tmp, /run and /var/tmp."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from steps.clients import process
from steps.errors import BadTask

PROGRAM: Final = "bwrap"
_EMPTY: Final = ("/tmp", "/var/tmp", "/run")
_SPACES: Final = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
"""bubblewrap's options for namespaces, without a user namespace: that would have one id, but a root has files of several users.

`namespace.call` has made a user namespace if this process is not root.
"""
_CAPABILITIES: Final = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SYS_CHROOT", "SETFCAP")
"""Capabilities of root in the sandbox: rights over files and processes of other users, none over this machine."""
_ENVIRONMENT: Final = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
}


def command(
    root: Path,
    words: Sequence[str],
    *,
    readable: Mapping[str, Path] | None = None,
    writable: Mapping[str, Path] | None = None,
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """Return the command line that runs `words` in the root.

    `readable` and `writable` map paths below /run or /tmp to host folders.
    """
    # --new-session: in the builder's session a program could type into its terminal (TIOCSTI, CVE-2017-5226)
    line = [PROGRAM, "--ro-bind", str(root), "/", *_SPACES, "--die-with-parent", "--new-session", "--hostname", "image"]
    line += ["--cap-drop", "ALL", *(word for name in _CAPABILITIES for word in ("--cap-add", f"CAP_{name}"))]
    line += ["--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm"]
    for place in _EMPTY:
        line += ["--perms", "0755" if place == "/run" else "1777", "--tmpfs", place]
    for place, folder in (readable or {}).items():
        line += ["--ro-bind", str(folder), place]
    for place, folder in (writable or {}).items():
        line += ["--bind", str(folder), place]
    line += ["--clearenv"]
    for name, value in {**_ENVIRONMENT, **(environment or {})}.items():
        line += ["--setenv", name, value]
    return [*line, "--chdir", "/", *words]


def require(root: Path, seconds: float) -> None:
    """Run a trivial program in the sandbox. Raises BadTask if this machine or the root lacks what the sandbox needs."""
    if shutil.which(PROGRAM) is None:
        raise BadTask("tests of an image run in bubblewrap, which is not installed", hint="install package bubblewrap")
    done = process.run(command(root, ["/bin/sh", "-c", ":"]), seconds=seconds)
    if done.code == 0:
        return
    reason = done.err.strip().splitlines()[-1] if done.err.strip() else f"it ended with {done.code}"
    if "execvp" in reason:
        raise BadTask(f"nothing runs in this root: {reason}", hint="see which layer should have brought /bin/sh, and build it anew")
    raise BadTask(f"bubblewrap refuses to run here: {reason}", hint="give the container SYS_ADMIN (privileged), or build as root")
