"""A stand-in for an NTP server (RFC 5905), whose clock is this machine's or off by so many seconds."""

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

NTP_EPOCH = 2208988800


@contextmanager
def serving(address: str, port: int = 123, *, off: float = 0.0) -> Iterator[int]:
    """Serve at an address while the context lasts; its port (of 0: a free one)."""
    with socket.socket(type=socket.SOCK_DGRAM) as served:
        served.bind((address, port))
        ended = threading.Event()
        served.settimeout(0.05)

        def answer() -> None:
            while not ended.is_set():
                with suppress(TimeoutError):
                    asked, sender = served.recvfrom(512)
                    now = struct.pack("!II", int(time.time() + off) + NTP_EPOCH, int((time.time() + off) % 1 * 2**32))
                    head = struct.pack("!BBbbII4s", 0x24, 1, 6, -20, 0, 1, b"LOCL")
                    served.sendto(head + now + asked[40:48] + now + now, sender)

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield int(served.getsockname()[1])
        finally:
            ended.set()
            thread.join()
