"""Delays what a host sends to an address: a relay in user space, because not every kernel has netem.

Run it in the host's network namespace. It makes a TUN device, to which the caller sets a route for that address, keeps each packet
for a while, and sends it on by the host's fabric device.
"""

import argparse
import collections
import fcntl
import os
import select
import socket
import struct
import time

_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
"""Constants of linux/if_tun.h."""
_LARGEST = 65535
_RAW = 255
"""IPPROTO_RAW: the packet brings its own header."""


def _device(name: str) -> int:
    """Make the TUN device in the network namespace of this process; it goes when its file is closed."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def relay(name: str, out: str, seconds: float) -> None:
    """Send each packet that comes by device `name` on by device `out`, so many seconds later and in order; never return."""
    tun = _device(name)
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, _RAW) as onward:
        onward.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, out.encode())
        held: collections.deque[tuple[float, bytes]] = collections.deque()
        while True:
            patience = max(held[0][0] - time.monotonic(), 0.0) if held else None
            if select.select([tun], [], [], patience)[0]:
                held.append((time.monotonic() + seconds, os.read(tun, _LARGEST)))
            while held and held[0][0] <= time.monotonic():
                packet = held.popleft()[1]
                if packet[0] >> 4 == 4:  # the kernel also sends IPv6 router solicitations by a new device
                    onward.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))


def main() -> None:
    """Relay until the process is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("device")
    parser.add_argument("out")
    parser.add_argument("seconds", type=float)
    options = parser.parse_args()
    relay(options.device, options.out, options.seconds)


if __name__ == "__main__":
    main()
