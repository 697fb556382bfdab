"""Host settings of a node profile: each is read, changed if it differs, and read again. One that fails does not stop the others."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import Any, Callable, Optional

from ansible.module_utils import polling, proxy_login
from ansible.module_utils.atomic_files import replacement
from ansible.module_utils.nodeprofile import folder_modes, reload_marks

OK = "ok"
CHANGED = "changed"
DIFFERS = "differs"
FAILED = "failed"
UNAVAILABLE = "unavailable"

Item = dict
"""Result of one host setting: a dict with `name`, `status` (a constant above), and where known `want`, `before`, `after`, `why`."""


class Unavailable(Exception):
    """Error: the machine lacks what the setting is about, such as a kernel module or an init system."""


class RebootPending(Exception):
    """Error: the change is prepared and takes effect with the next boot. The text says why; `now` is the value until then."""

    def __init__(self, why: str, current: str = "") -> None:
        super().__init__(why)
        self.now = current


class CannotChange(Exception):
    """Error: a change of this machine was refused or failed; the text says why, often with the end of the tool's own message."""


class NodeAccess:
    """Access to this machine for the modules of the profile: runs commands, writes files, and knows whether changes are allowed.

    `diffs`, `reloads` and `reboots` collect what the settings changed, which programs must reload, and why a reboot is needed.
    """

    def __init__(self, module: Any, root: str = "") -> None:
        self.root = root
        self.check_mode: bool = module.check_mode
        self.diffs: list = []
        self.reloads: list = []
        self.reboots: list = []
        """Reasons for a reboot, one sentence each."""
        self._module = module

    def reader(self) -> NodeAccess:
        """Return a NodeAccess to this machine in check mode, which changes nothing."""
        other = NodeAccess(self._module, self.root)
        other.check_mode = True
        return other

    def has(self, tool: str) -> bool:
        """Return True if a command is installed."""
        return shutil.which(tool, path=_PATH) is not None

    def reload(self, name: str) -> None:
        """Record that service or tool `name` must reload after a change that is about to be made (`systemd_services.reloads`)."""
        if name and name not in self.reloads:
            reload_marks.mark(name, root=self.root)
            self.reloads.append(name)

    def run(self, *command: str, **environment: str) -> tuple:
        """Return exit code, standard output and standard error of a command, which runs without a shell.

        The code is 127 if there is no such tool, 126 if it cannot be started.

        The command runs in the root folder with / as home, like a service. SELinux policies that confine a tool (Debian's for dpkg
        and update-initramfs) deny it the login's home, and `find` fails if it cannot return to its working directory.
        """
        if not self.has(command[0]):
            return NO_COMMAND, "", "%s: no such command" % command[0]
        settings = dict(environment, **_SETTINGS)
        try:
            return self._module.run_command(list(command), cwd="/", environ_update=settings, handle_exceptions=False)
        except OSError as error:
            return NOT_STARTED, "", str(error)

    def run_bounded(self, seconds: float, *command: str) -> Optional[tuple]:
        """Return exit code and output of a command that may never end, or None if it has not ended after `seconds`.

        Messages on standard error are part of the output. The code is 127 if the command is missing or cannot start. A command that
        has not ended is killed but not waited for: one that hangs in a driver cannot be killed, and a process that waits for it
        would hang too.
        """
        if not self.has(command[0]):
            return NO_COMMAND, "%s: no such command" % command[0]
        # in memory, as the disk may be full; a pipe holds 64 KiB, and who waits for the end reads none of it
        with os.fdopen(os.memfd_create("output"), "w+b") as output:
            settings = dict(os.environ, **_SETTINGS)
            try:
                started = subprocess.Popen(
                    command,
                    cwd="/",
                    env=settings,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as reason:
                return NO_COMMAND, str(reason)
            for _ in polling.attempts(seconds, FIRST_LOOK):
                if started.poll() is not None:
                    output.seek(0)
                    return started.returncode, output.read().decode(errors="replace")
            # a process that hangs in a driver ignores even this, so the wait for it is short
            os.killpg(started.pid, signal.SIGKILL)
            for _ in polling.attempts(LAST_LOOK, FIRST_LOOK):
                if started.poll() is not None:
                    break
            return None

    def must(self, *command: str, **environment: str) -> str:
        """Return the standard output of a command. Raises CannotChange with the end of the command's message if it fails."""
        code, output, error = self.run(*command, **environment)
        if code != 0:
            message = proxy_login.redact_login(error.strip() or output.strip(), self._module.params)[-400:]
            raise CannotChange("%s ended with %d: %s" % (" ".join(command[:2]), code, message))
        return output

    def write(self, path: str, content: str, mode: int) -> None:
        """Replace a file atomically, create its folder if missing, and let other users enter folders that hold only our files."""
        with replacement(path, mode) as out:
            out.write(content.encode())
        folder_modes.open_folders(path, mode)


NO_COMMAND, NOT_STARTED = 127, 126
"""Exit codes that stand for a command that is missing, or that cannot be started, as shells give them."""
FIRST_LOOK, LAST_LOOK = 0.05, 1.0
"""Seconds until the first check of a command that may not end, and the longest wait for a command that was killed."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SETTINGS = {"LC_ALL": "C", "PATH": _PATH, "HOME": "/"}  # C: our patterns match the tools' English messages


def read_text(path: str) -> str:
    """Return a file's content; empty if the file is missing. Raises OSError if it cannot be read."""
    try:
        with open(path, errors="replace") as source:
            return source.read()
    except FileNotFoundError:
        return ""


def item(name: str, status: str, **words: str) -> Item:
    """Return the result of one host setting as a dict; empty words are left out."""
    return dict({"name": name, "status": status}, **{key: value for key, value in words.items() if value})


def settle(
    node: NodeAccess, name: str, want: str, read: Callable[[], str], change: Callable[[], object], *, seen_later: bool = False
) -> Item:
    """Bring one host setting to `want` and return its result; in check mode only compare. A setting that has its value stays.

    `read` returns the present value, and `change` changes it. With `seen_later` the new value shows only after a reload that serves
    several settings; it is taken for reached, and the second reading of the whole profile proves it.
    """
    before = ""
    try:
        before = read()
        if before == want:
            return item(name, OK, want=want, after=before)
        if node.check_mode:
            return item(name, DIFFERS, want=want, before=before, after=before)
        change()
        after = want if seen_later else read()
    except RebootPending as reason:
        node.reboots.append("%s: %s" % (name, reason))
        before = before or reason.now
        return item(name, DIFFERS, want=want, before=before, after=before, why=str(reason))
    except Unavailable as reason:
        return item(name, UNAVAILABLE, want=want, before=before, why=str(reason))
    except (OSError, ValueError, CannotChange) as reason:
        return item(name, FAILED, want=want, before=before, why=str(reason))
    if after == want:
        return item(name, CHANGED, want=want, before=before, after=after)
    why = "changed, but it reads the same as before or another value"
    return item(name, FAILED, want=want, before=before, after=after, why=why)


def measured(name: str, good: bool, want: str, seen: str, why: str) -> Item:
    """Return the result of a setting that can only be measured, such as a disk's size: ok if `good`, else failed with `why`."""
    if good:
        return item(name, OK, want=want, after=seen)
    return item(name, FAILED, want=want, before=seen, after=seen, why=why)
