"""What this machine's apt is told of the way to mirrors: proxies, and who signs their certificates.

apt makes a lock; what fetches the locked packages goes the same way where the environment names none. Also where there is no apt.
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from msgspec import Struct

from steps.clients import process
from steps.errors import StepError

DIRECT: Final = "DIRECT"
"""apt's word for no proxy."""
_OPTION = re.compile(r'^acquire::(\S+) "(.+)";$', re.MULTILINE | re.IGNORECASE)
_DETECTORS: Final = ("proxy-auto-detect", "proxyautodetect")


class Settings(Struct, frozen=True, kw_only=True):
    """The options below Acquire, in small letters as apt does not tell them apart."""

    options: Mapping[str, str]

    def proxy(self, url: str) -> str:
        """The proxy on the way to a URL; empty for none."""
        found = self._of_host("proxy", url) or self._detected(url) or self._of_all("proxy", url)
        return "" if found == DIRECT else found

    def authorities(self, url: str) -> str:
        """The file with the certificates that sign a mirror's; empty for those of the system."""
        return self._of_host("cainfo", url) or self._of_all("cainfo", url)

    def _of_host(self, option: str, url: str) -> str:
        return self._of_all(f"{option}::{(urlsplit(url).hostname or '').lower()}", url)

    def _of_all(self, option: str, url: str) -> str:
        """What is said for the URL's scheme; https has what http has where it has none of its own."""
        return next((found for scheme in (urlsplit(url).scheme, "http") if (found := self.options.get(f"{scheme}::{option}"))), "")

    def _detected(self, url: str) -> str:
        """What the program says that apt would ask; empty where it is none, or says nothing."""
        program = next((found for name in _DETECTORS if (found := self._of_all(name, url))), "")
        return _said(program, url).strip() if program else ""


def read() -> Settings:
    """The settings of this machine; none where it has no apt, or one that may not read them."""
    return Settings(options={name.lower(): value for name, value in _OPTION.findall(_said("apt-config", "dump", "Acquire"))})


def _said(*command: str) -> str:
    try:
        done = process.run(command)
    except (StepError, OSError):
        return ""
    return done.out if done.code == 0 else ""
