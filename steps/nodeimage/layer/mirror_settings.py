"""Settings of this machine's apt for reaching mirrors: proxies and certificate authorities.

A lock is made by apt. The download of locked packages uses apt's settings too, unless the environment names a proxy; it works
without apt.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from steps.clients import process
from steps.errors import StepError

DIRECT: Final = "DIRECT"
"""apt's word for a connection without proxy."""
_OPTION = re.compile(r'^acquire::(\S+) "(.+)";$', re.MULTILINE | re.IGNORECASE)
_DETECTORS: Final = ("proxy-auto-detect", "proxyautodetect")


class AptSettings(Struct, frozen=True, kw_only=True):
    """apt's options below `Acquire`, name → value; names are in lower case because apt ignores case."""

    options: Mapping[str, str]

    def proxy(self, url: str) -> str:
        """Return the proxy that apt uses for a URL; empty for none."""
        address = self._of_host("proxy", url) or self._detected(url) or self._of_all("proxy", url)
        return "" if address == DIRECT else address

    def authorities(self, url: str) -> str:
        """Return apt's file of certificate authorities for a URL's mirror; empty if apt uses the system's."""
        return self._of_host("cainfo", url) or self._of_all("cainfo", url)

    def _of_host(self, option: str, url: str) -> str:
        return self._of_all(f"{option}::{(urlsplit(url).hostname or '').lower()}", url)

    def _of_all(self, option: str, url: str) -> str:
        """Return an option's value for the URL's scheme, else its value for http; empty if neither is set."""
        return next((value for scheme in (urlsplit(url).scheme, "http") if (value := self.options.get(f"{scheme}::{option}"))), "")

    def _detected(self, url: str) -> str:
        """Return the proxy that apt's proxy detection program prints for a URL; empty without a program."""
        program = next((value for name in _DETECTORS if (value := self._of_all(name, url))), "")
        return _output(program, url).strip() if program else ""


def read() -> AptSettings:
    """Return the settings of this machine's apt; without options if apt is missing or may not read them."""
    return AptSettings(options={name.lower(): value for name, value in _OPTION.findall(_output("apt-config", "dump", "Acquire"))})


def _output(*command: str) -> str:
    try:
        done = process.run(command)
    except (StepError, OSError):
        return ""
    return done.out if done.code == 0 else ""
