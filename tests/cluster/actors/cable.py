"""A TCP cable between a client and the API server that can be cut: connections end, and new ones are refused while it is down."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Cable:
    """Listens at `port` of loopback, or of another address of this machine; bytes go through as they are, TLS included."""

    def __init__(self, host: str, port: int, at: str = "127.0.0.1") -> None:
        self._to = (host, port)
        self._listener = socket.create_server((at, 0))
        self.port: int = self._listener.getsockname()[1]
        self.opened = 0
        self._down = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, *, stay: bool = False) -> None:
        """End every connection; with `stay` no new one comes through before `mend`."""
        if stay:
            self._down.set()
        with self._lock:
            every, self._open = self._open, set()
        for end in every:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def mend(self) -> None:
        """Let connections through again."""
        self._down.clear()

    def close(self) -> None:
        """End everything."""
        self._listener.close()
        self.cut(stay=True)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._down.is_set():
                    raise ConnectionRefusedError
                far = socket.create_connection(self._to, timeout=5)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self.opened += 1
            with self._lock:
                self._open |= {near, far}
            for here, there in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(here, there), daemon=True).start()

    def _carry(self, here: socket.socket, there: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := here.recv(1 << 16):
                there.sendall(data)
        for end in (here, there):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def cable(host: str, port: int, at: str = "127.0.0.1") -> Iterator[Cable]:
    """A cable while the context lasts."""
    laid = Cable(host, port, at)
    try:
        yield laid
    finally:
        laid.close()
