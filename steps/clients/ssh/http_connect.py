"""Connects through an HTTP proxy (CONNECT) and hands the connection over to SSH; a program of its own.

`python -I -S http_connect.py SETTINGS HOST PORT` is a ProxyCommand with ProxyUseFdpass: once the proxy has agreed, SSH takes the
connection and this process ends. It runs for each login, so it imports little and nothing of bringup. SETTINGS is a private file
that `proxies` writes, so that no login is on a command line. The reason of a failure is also left in a file, since SSH drops the
output of its ProxyCommand when it keeps connections open for later use.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

MOST_BYTES = 16384
"""Limit of a proxy's answer, which normally has a few hundred bytes."""
SHOWN = 80


class ConnectFailed(Exception):
    """Raised if the connection failed. The message continues a sentence that begins with the proxy's name."""


class _ProxyAnswer:
    """Reader of a proxy's answer, byte by byte.

    What follows the answer is the host's own, and must stay in the socket for SSH.
    """

    def __init__(self, connection: socket.socket, until: float, late: str) -> None:
        self._connection, self._until, self._late = connection, until, late
        self.text = b""

    def head(self) -> tuple[str, list[str]]:
        """Return status line and headers of the answer. Raises ConnectFailed."""
        while not self.text.endswith((b"\r\n\r\n", b"\n\n")):
            self._more()
        first, *lines = self.text.decode("latin-1").splitlines()
        return first, lines

    def _more(self) -> None:
        try:
            self._connection.settimeout(max(self._until - time.monotonic(), 0.001))
            byte = self._connection.recv(1)
        except TimeoutError:
            raise ConnectFailed(self._late) from None
        except OSError as error:
            raise _broken(error) from None
        if not byte:
            raise ConnectFailed("closed the connection without an answer")
        self.text += byte
        if not b"HTTP/1.".startswith(self.text[:7]) or len(self.text) > MOST_BYTES:
            raise ConnectFailed(f"does not speak HTTP: it answered {_shown(self.text + self._rest())!r}")

    def _rest(self) -> bytes:
        """Return more bytes of an answer that is no HTTP, because an SSH or TLS server identifies itself in it."""
        self._connection.settimeout(0)
        with suppress(OSError):
            return self._connection.recv(SHOWN).partition(b"\n")[0]
        return b""


def connect(settings: Mapping[str, Any], host: str, port: str) -> socket.socket:
    """Return a connection to a host through the proxy. Raises ConnectFailed."""
    until = time.monotonic() + settings["seconds"]
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    connection = _dialled(settings, until)
    lines = [f"CONNECT {place} HTTP/1.1", f"Host: {place}"]
    lines += [f"Proxy-Authorization: Basic {settings['login']}"] if settings["login"] else []
    late = f"gave no answer within {settings['seconds']:g} s: is {place} there, and may the proxy connect to it?"
    try:
        connection.sendall("\r\n".join([*lines, "", ""]).encode("ascii"))
    except OSError as error:
        raise _broken(error) from None
    _check(*_ProxyAnswer(connection, until, late).head(), settings, place)
    # a time limit makes the socket non-blocking, also for SSH, which gets the same open file
    connection.settimeout(None)
    return connection


def _broken(error: OSError) -> ConnectFailed:
    return ConnectFailed(f"broke the connection off: {error.strerror}")


def _dialled(settings: Mapping[str, Any], until: float) -> socket.socket:
    """Return a connection to the proxy at the first of its addresses that answers; each gets its part of the time."""
    why = f"no answer within {settings['seconds']:g} s"
    try:
        addresses = socket.getaddrinfo(settings["address"], settings["port"], type=socket.SOCK_STREAM)
    except OSError as error:
        raise ConnectFailed(f"is not reached: {settings['address']}: {error.strerror}") from None
    for number, (*_, address) in enumerate(addresses):
        try:
            return socket.create_connection(
                (str(address[0]), settings["port"]), max(until - time.monotonic(), 0.001) / (len(addresses) - number)
            )
        except TimeoutError:
            continue
        except OSError as error:
            why = error.strerror or str(error)
    raise ConnectFailed(f"is not reached: {why}")


def _check(status: str, headers: Sequence[str], settings: Mapping[str, Any], place: str) -> None:
    """Raise ConnectFailed unless the proxy's answer says that the connection is made."""
    code, _, reason = status.partition(" ")[2].partition(" ")
    shown_status = _shown(f"{code} {reason}".encode("latin-1")).strip()
    if not (code.isdecimal() and len(code) == 3):
        raise ConnectFailed(f"does not speak HTTP: it answered {_shown(status.encode('latin-1'))!r}")
    if code == "407" or (code == "401" and settings["login"]):  # tinyproxy answers 401 to a wrong login
        fields = (line.partition(":") for line in headers)
        ways = [value.split()[0] for name, _, value in fields if name.strip().lower() == "proxy-authenticate" and value.strip()]
        if ways and not any(way.lower() == "basic" for way in ways):
            raise ConnectFailed(
                f"wants a login by {_shown(' or '.join(ways).encode('latin-1'))}, and only Basic is known here ({shown_status})"
            )
        raise ConnectFailed(
            f"refuses the login of {settings['user']} ({shown_status})" if settings["login"] else f"wants a login ({shown_status})"
        )
    if code.startswith("5"):
        raise ConnectFailed(f"cannot reach {place} ({shown_status})")
    if not code.startswith("2"):
        raise ConnectFailed(f"refuses CONNECT to {place} ({shown_status})")


def _shown(text: bytes) -> str:
    """Return the beginning of an answer as one line of plain characters, for a message."""
    return "".join(chr(byte) if 32 <= byte < 127 else "?" for byte in text.rstrip()[:SHOWN])


def main(file: str, host: str, port: str) -> int:
    """Connect and hand over the connection, or report the failure; return the exit code."""
    with open(file, encoding="utf-8") as opened:
        settings = json.load(opened)
    reason_file = os.path.join(settings["told"], f"{host}_{port}")
    try:
        connection = connect(settings, host, port)
    except ConnectFailed as error:
        sentence = f"HTTP proxy {settings['url']} {error}"
        sys.stderr.write(f"{sentence}\n")
        _leave(reason_file, sentence)
        return 1
    with suppress(FileNotFoundError):
        # the reason of an earlier failure is out of date
        os.unlink(reason_file)
    with socket.socket(fileno=os.dup(sys.stdout.fileno())) as ssh:
        # a descriptor travels only with at least one byte of data (unix(7))
        socket.send_fds(ssh, [b"\0"], [connection.fileno()])
    return 0


def _leave(file: str, sentence: str) -> None:
    """Write why the connection failed into a file for the caller of SSH, atomically because several logins may fail at once."""
    fresh = f"{file}.{os.getpid()}"
    with open(fresh, "w", encoding="utf-8") as opened:
        opened.write(sentence)
    os.replace(fresh, file)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
