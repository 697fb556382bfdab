#!/usr/bin/python
"""Ansible module that cuts its host off from the machines of a factory for a trial, and reports what works meanwhile."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import re
import select
import socket
import ssl
import stat
import subprocess
import time
import urllib.parse
import urllib.request
from typing import TYPE_CHECKING, BinaryIO

from ansible.module_utils.basic import AnsibleModule

if TYPE_CHECKING:
    from collections.abc import Callable

DOCUMENTATION = r"""
module: factory_cut
short_description: Cuts a host off from a factory and runs commands, or joins it again
description:
  - C(phase=trial) adds one routing rule for each address, by which packets to it are dropped, and tries what must work. The rules
    stay until C(phase=join), so that all hosts are cut off while the slowest of them tries. A process of its own removes them after
    C(cut_seconds) if nobody joins the host. Routes and firewalls of the host stay as they are.
  - C(phase=join) removes the rules and reads the folders. Without C(addresses) nothing was cut, and only the folders are read.
author: [bringup]
options:
  phase: {description: C(trial) or C(join)., type: str, required: true}
  held: {description: What the trial returned; empty if it has no result., type: dict, default: {}}
  cut_seconds: {description: Seconds after which a cut ends by itself., type: int, default: 600}
  addresses: {description: IP addresses of the factory., type: list, elements: str, default: []}
  ports: {description: TCP ports by which the cut is proven., type: list, elements: int, default: []}
  commands: {description: Lines for a login shell., type: list, elements: str, default: []}
  user: {description: User who runs the commands., type: str, default: nobody}
  boot: {description: URLs of boot scripts., type: list, elements: str, default: []}
  folders: {description: Published folders that are compared., type: list, elements: str, default: []}
  seconds: {description: Time limit of one command., type: int, default: 60}
  machine:
    description:
      - How a machine is started under the cut, and what tells that it runs. C(power) is a line for a login shell of C(user),
        C(console) a text that its output must have, C(answers) an address C(ssh://HOST:PORT) or a URL that must answer, C(seconds)
        the time limit. Empty if no machine is booted.
    type: dict
    default: {}
"""

RETURN = r"""
held:
  description: 'Of a trial, for C(phase=join): what was seen, the process that ends the cut, and when it began. Kept from reports.'
  type: dict
observation:
  description: 'Of C(phase=join), unless the trial has no result. reached: addresses with ports that answer under the cut;
    remaining: addresses whose rule is still there; commands, boot: what failed, by command or URL, empty if it works; folders:
    digest of names, modes, links and bytes of each, empty if missing; unread: number of files of a folder that are in its digest
    by size and time alone; resolved: number of boot files that answer; machine: why it did not boot, empty if it did, and after
    how many seconds; took: seconds for which the host was cut off.'
  type: dict
"""

PREFERENCE = "9877"
"""Preference of the routing rules, before the main table at 32766; it tells which rules are ours."""
CONNECT_SECONDS, FETCH_SECONDS = 3, 20
LARGEST_SCRIPT, MOST_SCRIPTS = 262144, 20
LARGEST_READ, MOST_READ = 256 << 20, 4 << 30
"""Largest published file that is read, and most bytes of all of them: at 100 MB/s they take 40 s."""
MOST_OUTPUT, PIECE, PROBE_SECONDS = 262144, 65536, 1.0
"""Bytes of a console that are searched for its text, bytes read at once, and seconds between two looks at a machine's address."""
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Opener without the proxies of the host's environment: a machine that boots asks none, and a proxy may be the factory's."""
URL = re.compile(r"https?://[^\s'\"|]+")


class Cut:
    """The routing rules that drop packets to a factory: while the context lasts, or until `join` if it is kept beyond that."""

    def __init__(self, ip: str, addresses: list[str], seconds: int) -> None:
        self.ip, self.addresses, self.seconds = ip, addresses, seconds
        self.watchdog = None

    def __enter__(self) -> Cut:
        """Start the process that ends the cut if this one is killed, then cut."""
        delete = 'case "$at" in *:*) kind=-6;; *) kind=-4;; esac; "$ip" "$kind" rule del pref %s to "$at"' % PREFERENCE
        script = 'sleep "$1"; shift; ip=$1; shift; for at; do %s; done' % delete
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        words = ["/bin/sh", "-c", script, "sh", str(self.seconds), self.ip, *self.addresses]
        self.watchdog = subprocess.Popen(words, start_new_session=True, **quiet)
        try:
            for address in self.addresses:
                self._rule("add", address, "unreachable")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the rules, then end the watching process."""
        self.join([self.watchdog.pid])
        self.watchdog.wait()

    def join(self, watchdogs: list[int]) -> None:
        """Remove the rules, then end the watching processes, which would end a later cut of the same addresses too."""
        for address in self.remaining():
            self._rule("del", address)
        for process in watchdogs:
            if is_watchdog(process, self.addresses):  # its number may be another process's by then
                os.killpg(process, 9)

    def remaining(self) -> list[str]:
        """Return the addresses whose rules are there."""
        return [address for address in self.addresses if address in self._listed(address)]

    def _listed(self, address: str) -> list[str]:
        done = subprocess.run([*self._command(address), "show", "pref", PREFERENCE], capture_output=True, text=True, check=False)
        return done.stdout.split()

    def _command(self, address: str) -> list[str]:
        return [self.ip, "-6" if ":" in address else "-4", "rule"]

    def _rule(self, verb: str, address: str, *action: str) -> None:
        words = [*self._command(address), verb, "pref", PREFERENCE, "to", address, *action]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError("%s: %s" % (" ".join(words), done.stderr.strip() or "no reason given"))


def is_watchdog(process: int, addresses: list[str]) -> bool:
    """Return True if a process is one that ends a cut from these addresses."""
    try:
        with open("/proc/%d/cmdline" % process, "rb") as stream:
            words = stream.read().decode(errors="replace").rstrip("\0").split("\0")
    except OSError:
        return False
    return "rule del pref %s" % PREFERENCE in " ".join(words[:3]) and words[-len(addresses) :] == addresses


def leftover_watchdogs(addresses: list[str]) -> list[int]:
    """Return the processes that end a cut from these addresses, as a trial leaves one that was ended by its time limit."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and is_watchdog(int(name), addresses)]


def reached(addresses: list[str], ports: list[int]) -> list[str]:
    """Return the addresses with ports to which a connection can be made."""
    answered = []
    for address in addresses:
        for port in ports:
            try:
                socket.create_connection((address, port), CONNECT_SECONDS).close()
            except OSError:
                continue
            answered.append("%s:%d" % (address, port))
    return answered


def login_shell(command: str, user: str) -> subprocess.Popen[bytes]:
    """Start a line in a login shell of a user, with a process group of its own; its errors are in its output."""
    words = ["runuser", "-u", user, "--", "bash", "--login", "-c", command]
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/", "LANG": "C"}
    return subprocess.Popen(
        words,
        cwd="/",
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


def failure(command: str, user: str, seconds: int) -> str:
    """Run a line in a login shell of a user; return why it failed, empty if it did not."""
    process = login_shell(command, user)
    try:
        output = process.communicate(timeout=seconds)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        return "did not end within %d s" % seconds
    lines = output.decode(errors="replace").strip().splitlines() or ["no output"]
    return "ended with %d: %s" % (process.returncode, lines[-1][:200]) if process.returncode else ""


def resolve(start: str) -> tuple[str, int]:
    """Follow a boot script to the files that it loads; return what does not answer (empty: all does), and how many files do."""
    waiting, seen, answered = [start], set(), 0
    while waiting:
        url = waiting.pop(0)
        if url in seen or "${" in url:  # what the machine fills in cannot be asked for here
            continue
        seen.add(url)
        is_script = url == start or url.endswith(".ipxe")
        try:
            request = urllib.request.Request(url, method="GET" if is_script else "HEAD")
            with DIRECT.open(request, timeout=FETCH_SECONDS) as answer:
                text = answer.read(LARGEST_SCRIPT).decode(errors="replace") if is_script else ""
        except (OSError, ValueError, http.client.HTTPException) as error:
            return "%s: %s" % (url, error), answered
        answered += 1
        if is_script and len(seen) < MOST_SCRIPTS:
            waiting += [link for line in text.splitlines() if not line.startswith("#") for link in URL.findall(line)]
    return "", answered


class MachineStart:
    """The start of a machine by the site, until its console shows a text, its address answers, or both, as it was ordered.

    A machine that answers before has to fall silent first, because an answer of its old system proves nothing.
    """

    def __init__(self, order: dict, start: Callable[[str, str], subprocess.Popen[bytes]] = login_shell) -> None:
        self.order, self.start, self.output = order, start, b""
        self.console, self.answers = order.get("console") or "", order.get("answers") or ""
        self.was_silent = not (self.answers and is_answering(self.answers))
        self.looked = 0.0

    def run(self) -> dict:
        """Start the machine; return why it did not boot, empty if it did, and after how many seconds."""
        began = time.monotonic()
        process = self.start(self.order["power"], self.order["user"])
        try:
            reason = self._wait(process, began + int(self.order["seconds"]))
        finally:
            if process.poll() is None:  # a command that shows the console, or is the machine itself, ends with the trial
                os.killpg(process.pid, 9)
            process.wait()
            process.stdout.close()
        return {"failure": reason, "took": round(time.monotonic() - began, 1)}

    def _wait(self, process: subprocess.Popen[bytes], deadline: float) -> str:
        is_open = True
        while time.monotonic() < deadline:
            code = process.poll()
            is_open = self._read(process) if is_open else self._pause()
            if code:
                return "its command ended with %d: %s" % (code, self._last())
            if code == 0 and not is_open and self.console:
                return "its command ended, and its output has no %r: %s" % (self.console, self._last())
            self._look()
            if not self.console and not self.answers:
                return ""
        return "after %d s %s" % (int(self.order["seconds"]), " and ".join(self._missing()))

    def _read(self, process: subprocess.Popen[bytes]) -> bool:
        """Read what the command has written, within a second; return False at the end of its output."""
        if not select.select([process.stdout], [], [], PROBE_SECONDS)[0]:
            return True
        data = os.read(process.stdout.fileno(), PIECE)
        self.output = (self.output + data)[-MOST_OUTPUT:]
        if self.console and self.console.encode() in self.output:
            self.console = ""
        return bool(data)

    def _pause(self) -> bool:
        time.sleep(PROBE_SECONDS)
        return False

    def _look(self) -> None:
        """Ask the machine's address, once a second."""
        if not self.answers or time.monotonic() < self.looked + PROBE_SECONDS:
            return
        is_up, self.looked = is_answering(self.answers), time.monotonic()
        if is_up and self.was_silent:
            self.answers = ""
        self.was_silent = self.was_silent or not is_up

    def _missing(self) -> list[str]:
        silent = "%s does not answer" if self.was_silent else "%s has answered all the time, as before"
        console = ["its output has no %r: %s" % (self.console, self._last())] if self.console else []
        return console + ([silent % self.answers] if self.answers else [])

    def _last(self) -> str:
        lines = self.output.decode(errors="replace").strip().splitlines() or ["no output"]
        return lines[-1][:200]


def is_answering(address: str) -> bool:
    """Return True if an SSH server answers at `ssh://HOST:PORT`, or a web server at a URL, with its first bytes.

    A port that is merely open proves nothing: an emulator opens it before the machine behind it runs. A web server that answers
    with an error, or has a certificate that nobody signed, runs all the same.
    """
    try:
        place = urllib.parse.urlsplit(address)
        if place.scheme != "ssh":
            return is_serving(place)
        with socket.create_connection((place.hostname, place.port or 22), CONNECT_SECONDS) as connection:
            return connection.recv(4) == b"SSH-"
    except (OSError, ValueError, http.client.HTTPException):
        return False


def is_serving(place: urllib.parse.SplitResult) -> bool:
    """Return True once a web server has answered with any status. Raises OSError, ValueError or HTTPException if none does."""
    server = place.netloc.rpartition("@")[2]
    if place.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = http.client.HTTPSConnection(server, timeout=CONNECT_SECONDS, context=context)
    else:
        connection = http.client.HTTPConnection(server, timeout=CONNECT_SECONDS)
    try:
        connection.request("GET", (place.path or "/") + ("?" + place.query if place.query else ""))
        return connection.getresponse().status > 0
    finally:
        connection.close()


class FolderReader:
    """Reader of published folders; it reads files up to a limit of bytes over all folders, so that it ends."""

    def __init__(self, most: int = MOST_READ, largest: int = LARGEST_READ) -> None:
        self.remaining, self.largest, self.unread = most, largest, 0

    def content(self, folder: str) -> str:
        """Return a digest of all below a folder: names, modes, links, and bytes of files; empty if there is no such folder.

        Files beyond the limits count by size and time of modification; `unread` is their number.
        """
        self.unread = 0
        if not os.path.isdir(folder):
            return ""
        summary = hashlib.sha256()
        for path, folders, names in os.walk(folder):
            folders.sort()
            for name in sorted([*folders, *names]):
                full = os.path.join(path, name)
                try:
                    entry = self._entry(full)
                except OSError as error:
                    self.unread, entry = self.unread + 1, "unreadable %s" % error.errno
                summary.update(("%s\0%s\n" % (os.path.relpath(full, folder), entry)).encode(errors="surrogateescape"))
        return "sha256:" + summary.hexdigest()

    def _entry(self, path: str) -> str:
        """Return what a link, folder or file is, as a text that changes with it. Raises OSError."""
        status = os.lstat(path)
        kind, mode = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
        if stat.S_ISLNK(kind):
            return "link %s" % os.readlink(path)
        if not stat.S_ISREG(kind):
            return "other %o %o" % (kind, mode)
        if status.st_size > min(self.largest, self.remaining):
            self.unread += 1
            return "file %o %d %d" % (mode, status.st_size, status.st_mtime_ns)
        self.remaining -= status.st_size
        with open(path, "rb") as stream:
            return "file %o %s" % (mode, _digest(stream))


def _digest(stream: BinaryIO) -> str:
    summary = hashlib.sha256()
    while block := stream.read(1 << 20):
        summary.update(block)
    return summary.hexdigest()


def attempt(values: dict, ip: str, start: Callable[[str, str], subprocess.Popen[bytes]] = login_shell) -> dict:
    """Cut the host off and try what must work without the factory; return what `conclude` needs. The cut stays until then."""
    seen, began = {"commands": {}, "boot": {}, "resolved": 0, "machine": None}, time.time()
    with contextlib.ExitStack() as stack:
        cut = stack.enter_context(Cut(ip, values["addresses"], values["cut_seconds"]))
        seen["reached"] = reached(values["addresses"], values["ports"])
        for command in values["commands"]:
            seen["commands"][command] = failure(command, values["user"], values["seconds"])
        for url in values["boot"]:
            seen["boot"][url], answered = resolve(url)
            seen["resolved"] += answered
        if values["machine"]:
            seen["machine"] = MachineStart(values["machine"], start).run()
        stack.pop_all()
        cut.watchdog.returncode = 0  # it outlives this process, of which its destructor would warn
    return {"seen": seen, "watchdog": cut.watchdog.pid, "began": began}


def conclude(values: dict, ip: str, held: dict) -> dict | None:
    """Join the host again and read its folders; return the observation, None if its trial has no result."""
    seen, took = held.get("seen"), 0.0
    if values["addresses"]:
        cut = Cut(ip, values["addresses"], 0)
        # asked again, because a cut that ended before the slowest host's trial proves nothing of that trial
        late = reached(values["addresses"], values["ports"]) if seen else []
        cut.join([held["watchdog"]] if seen else leftover_watchdogs(values["addresses"]))
        if not seen:
            return None
        took = round(time.time() - held["began"], 1)
        seen = {**seen, "reached": sorted({*seen["reached"], *late}), "remaining": cut.remaining()}
    seen = seen or {"reached": [], "remaining": [], "commands": {}, "boot": {}, "resolved": 0, "machine": None}
    reader, folders, unread = FolderReader(), {}, {}
    for folder in values["folders"]:
        folders[folder] = reader.content(folder)
        if reader.unread:
            unread[folder] = reader.unread
    return {**seen, "folders": folders, "unread": unread, "took": took}


def main() -> None:
    """Exit with what a trial has seen, or with the observation once the host is joined again."""
    words = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            **dict.fromkeys(("addresses", "commands", "boot", "folders"), words),
            "phase": {"type": "str", "required": True, "choices": ["trial", "join"]},
            "held": {"type": "dict", "default": {}},
            "cut_seconds": {"type": "int", "default": 600},
            "ports": {"type": "list", "elements": "int", "default": []},
            "user": {"type": "str", "default": "nobody"},
            "seconds": {"type": "int", "default": 60},
            "machine": {"type": "dict", "default": {}},
        }
    )
    values = module.params
    ip = module.get_bin_path("ip", required=bool(values["addresses"]), opt_dirs=["/usr/sbin", "/sbin"])
    if values["phase"] == "trial":
        try:
            module.exit_json(changed=False, held=attempt(values, ip))
        except OSError as error:
            module.fail_json(msg="the host is not cut off from the factory, and nothing was tried: %s" % error)
    try:
        observation = conclude(values, ip, values["held"])
    except OSError as error:
        module.fail_json(msg="the host may still be cut off from the factory: %s" % error)
    module.exit_json(changed=False, **({"observation": observation} if observation else {}))


if __name__ == "__main__":
    main()
