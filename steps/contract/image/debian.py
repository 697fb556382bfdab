"""What Debian's package manager leaves in a root, and what it calls its files: the facts of dpkg and apt, as data and pure readers.

`clients/image/layer/apt` drives it in a root, `workflows/images/nodes/packages` asks it what there is; nothing else of a node image
knows a package manager. Another family is a module beside each of the three, told apart by the recipe's distribution.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from steps.contract.image.recipe import Package

STATUS: Final = "var/lib/dpkg/status"
"""The database of what is installed."""
MARKS: Final = "var/lib/apt/extended_states"
"""What came along for others."""
NOTES: Final = "var/lib/dpkg/info"
"""Notes of each package: its paths (`NAME.list`), their digests (`NAME.md5sums`), its scripts."""
DIGESTS: Final = f"{NOTES}/*.md5sums"
SUFFIX: Final = ".deb"
CACHES: Final = (Path("/var/cache/apt/archives"),)
"""Folders of a machine that may have packages."""
EMPTIED: Final = ("var/lib/apt/lists", "var/cache/apt")
"""Folders of which nothing stays in an image: they can be fetched again, and have times in them."""
REMOVED: Final = (
    "var/cache/debconf/*-old",
    "var/lib/apt/daily_lock",
    "var/lib/dpkg/*-old",
    "var/lib/dpkg/lock*",
    "var/lib/dpkg/triggers/Lock",
)
"""Locks and old copies."""
IS_INSTALLED: Final = "dpkg-query -W -f '${db:Status-Status}' \"$name\" 2>&1 | grep -qx installed"
"""As shell, on a running node: whether package $name is installed completely."""

INSTALLERS: Final = {"apt": ("apt-get", "--version"), "dpkg-deb": ("dpkg-deb", "--version"), "tar": ("tar", "--version")}
"""Programs of the machine that builds which unpack packages and put them in order, with what has them say their version."""

_WHOLE: Final = " ok installed"
_NOTE: Final = re.compile(rf"{NOTES}/([^/:]+?)(?::\w+)?\.(list|[a-z0-9]+)")


class Note(Struct, frozen=True):
    """A file that the package manager keeps about a package; where it `lists`, the package's paths stand in it."""

    package: str
    lists: bool


def cached_name(package: Package) -> str:
    """The file of a package in one of CACHES."""
    named = f"{package.name}_{quote(package.version, safe='+~')}_{package.architecture}{SUFFIX}"
    return named.replace("%3A", "%3a")


def in_archive(archive: Path, sha256: str) -> Path:
    """Where an archive has the package of a digest, or would."""
    return archive / sha256[:2] / f"{sha256}{SUFFIX}"


def states(status: str) -> dict[str, str]:
    """Packages of a database, name → what it says of them (`install ok installed`)."""
    return {name: fields["Status"] for name, fields in _packages(status) if "Status" in fields}


def is_whole(state: str) -> bool:
    """Whether a package of this state is installed completely."""
    return state.endswith(_WHOLE)


def installed(status: str) -> list[str]:
    """`name=version` of what is installed completely, sorted."""
    return sorted(f"{name}={fields.get('Version', '')}" for name, fields in _packages(status) if is_whole(fields.get("Status", "")))


def _packages(status: str) -> Iterable[tuple[str, dict[str, str]]]:
    for block in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", block, re.MULTILINE))
        if "Package" in fields:
            yield fields["Package"], fields


def digests(notes: Iterable[str]) -> dict[str, str]:
    """From the texts of DIGESTS: path as a package has it → MD5 in hex."""
    rows = (line.partition("  ") for text in notes for line in text.splitlines())
    return {path: digest for digest, _, path in rows}


def note(path: str) -> Note | None:
    """Whether a path of a root is a note about a package."""
    found = _NOTE.fullmatch(path)
    return Note(found[1], found[2] == "list") if found else None


def listed(text: str) -> list[str]:
    """The paths of a package, from a note that lists them, in a root whose /bin, /sbin and /lib are links to those in /usr."""
    return [_merged(path) for path in text.splitlines() if path not in ("/.", "")]


def _merged(path: str) -> str:
    plain = os.path.normpath(path).lstrip("/")
    return f"usr/{plain}" if re.match(r"(bin|sbin|lib\w*)/", plain) else plain
