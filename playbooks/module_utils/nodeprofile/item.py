"""One item of a node profile: read, change if it differs, read again; whatever goes wrong stays with this item."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from typing import Any, Callable, Optional

from ansible.module_utils import proxies, waiting
from ansible.module_utils.nodeprofile import opened, owed
from ansible.module_utils.replacing import replacing

OK = "ok"
CHANGED = "changed"
DIFFERS = "differs"
FAILED = "failed"
UNAVAILABLE = "unavailable"

Item = dict
"""name, status, and where they say something: want, before, after, why."""


class Unavailable(Exception):
    """This machine has no such thing: a module that its kernel lacks, a service without an init."""


class Waiting(Exception):
    """It is arranged, and only a reboot brings it; the text says so, and `now` what there is until then."""

    def __init__(self, why: str, now: str = "") -> None:
        super().__init__(why)
        self.now = now


class CannotChange(Exception):
    """The change was tried and refused; the text is the tool's own, cut to what a person reads."""


class Node:
    """The machine, as the parts see it: commands, files, and whether they may change anything."""

    def __init__(self, module: Any, root: str = "") -> None:
        self.root = root
        self.check_mode: bool = module.check_mode
        self.diffs: list = []
        self.reloads: list = []
        self.reboots: list = []
        """What only a reboot brings, one sentence each."""
        self._module = module

    def reader(self) -> Node:
        """The same machine, where nothing may be changed."""
        other = Node(self._module, self.root)
        other.check_mode = True
        return other

    def has(self, tool: str) -> bool:
        """Whether a command is installed."""
        return shutil.which(tool, path=_PATH) is not None

    def reload(self, name: str) -> None:
        """Something has to learn of a change that is about to be made: see `services.reloads`."""
        if name and name not in self.reloads:
            owed.mark(name, root=self.root)
            self.reloads.append(name)

    def run(self, *command: str, **environment: str) -> tuple:
        """Exit code, standard output and standard error of a command; never through a shell. 127 where there is no such tool.

        In the root folder, with no home, as a service is run: a policy of SELinux that confines a tool (Debian's: dpkg and
        update-initramfs) keeps it out of the home of who has logged in, and `find` fails where it may not go back to.
        """
        if not self.has(command[0]):
            return 127, "", "%s: no such command" % command[0]
        settings = dict(environment, **_SETTINGS)
        return self._module.run_command(list(command), cwd="/", environ_update=settings, handle_exceptions=True)

    def told(self, seconds: float, *command: str) -> Optional[str]:
        """What a command prints that may never end; None where it has not ended in time. It is left then: one that hangs in a
        driver cannot be killed, and who waits for its end hangs too."""
        if not self.has(command[0]):
            return ""
        # in memory, as the disk may be full; a pipe holds 64 KiB, and who waits for the end reads none of it
        with os.fdopen(os.memfd_create("told"), "w+b") as output:
            settings = dict(os.environ, **_SETTINGS)
            quiet = subprocess.DEVNULL
            try:
                started = subprocess.Popen(
                    command, cwd="/", env=settings, stdin=quiet, stdout=output, stderr=quiet, start_new_session=True
                )
            except OSError:
                return ""
            for _ in waiting.rounds(seconds, FIRST_LOOK):
                if started.poll() is not None:
                    output.seek(0)
                    return output.read().decode(errors="replace")
            os.killpg(started.pid, signal.SIGKILL)
            for _ in waiting.rounds(LAST_LOOK, FIRST_LOOK):
                if started.poll() is not None:
                    break
            return None

    def must(self, *command: str, **environment: str) -> str:
        """Standard output of a command that has to succeed; else CannotChange with the end of what it said."""
        code, output, error = self.run(*command, **environment)
        if code != 0:
            said = proxies.hidden(error.strip() or output.strip(), self._module.params)[-400:]
            raise CannotChange("%s ended with %d: %s" % (" ".join(command[:2]), code, said))
        return output

    def write(self, path: str, content: str, mode: int) -> None:
        """Replace a file in one step; its folder is made if need be."""
        with replacing(path, mode) as out:
            out.write(content.encode())
        opened.open_up(path, mode)


FIRST_LOOK, LAST_LOOK = 0.05, 1.0
"""Seconds until it is first looked whether a command has ended that may not, and how long one that was killed is waited for."""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SETTINGS = {"LC_ALL": "C", "PATH": _PATH, "HOME": "/"}


def read_text(path: str) -> str:
    """Content of a file, empty if there is none."""
    try:
        with open(path, errors="replace") as source:
            return source.read()
    except FileNotFoundError:
        return ""


def item(name: str, status: str, **words: str) -> Item:
    """An item; empty words are left out."""
    return dict({"name": name, "status": status}, **{key: value for key, value in words.items() if value})


def settle(
    node: Node, name: str, want: str, read: Callable[[], str], change: Callable[[], None], *, seen_later: bool = False
) -> Item:
    """Bring one item to `want`: a second run finds it there and changes nothing.

    `seen_later`: only a reload that serves several items shows the change; the second reading of the whole profile is the proof.
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
    except Waiting as reason:
        node.reboots.append("%s: %s" % (name, reason))
        before = before or reason.now
        return item(name, DIFFERS, want=want, before=before, after=before, why=str(reason))
    except Unavailable as reason:
        return item(name, UNAVAILABLE, want=want, before=before, why=str(reason))
    except (OSError, ValueError, CannotChange) as reason:
        return item(name, FAILED, want=want, before=before, why=str(reason))
    if after == want:
        return item(name, CHANGED, want=want, before=before, after=after)
    return item(
        name, FAILED, want=want, before=before, after=after, why="changed, but it reads the same as before or another value"
    )


def measured(name: str, good: bool, want: str, seen: str, why: str) -> Item:
    """An item that no profile can change, such as the size of a disk."""
    if good:
        return item(name, OK, want=want, after=seen)
    return item(name, FAILED, want=want, before=seen, after=seen, why=why)
