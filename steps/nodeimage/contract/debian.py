"""Facts of dpkg and apt: the files that Debian's package manager leaves in a root file system, and pure readers of them.

`steps/nodeimage/layer/package_installation` installs packages in a root, `workflows/nodeimage/package_resolution` resolves them; no
other module of node images knows a package manager. Another family needs a module beside each of the three, chosen by the
distribution of the recipe.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from steps.nodeimage.contract.resolved_recipe import Package

STATUS: Final = "var/lib/dpkg/status"
"""Path in a root of dpkg's database of installed packages."""
MARKS: Final = "var/lib/apt/extended_states"
"""Path in a root of apt's list of packages that were installed as dependencies."""
NOTES: Final = "var/lib/dpkg/info"
"""Folder with the files about each package: its paths (`NAME.list`), their digests (`NAME.md5sums`), its scripts."""
DIGESTS: Final = f"{NOTES}/*.md5sums"
SUFFIX: Final = ".deb"
CACHES: Final = (Path("/var/cache/apt/archives"),)
"""Folders of the build machine that may already have package files."""
EMPTIED: Final = ("var/lib/apt/lists", "var/cache/apt")
"""Folders that are emptied in an image: their files can be fetched again and contain times."""
REMOVED: Final = (
    "var/cache/debconf/*-old",
    "var/lib/apt/daily_lock",
    "var/lib/dpkg/*-old",
    "var/lib/dpkg/lock*",
    "var/lib/dpkg/triggers/Lock",
)
"""Paths that are removed from an image: locks and old copies."""
IS_INSTALLED: Final = "dpkg-query -W -f '${db:Status-Status}' \"$name\" 2>&1 | grep -qx installed"
"""Shell condition for a running node: package $name is installed completely."""

INSTALLERS: Final = {"apt": ("apt-get", "--version"), "dpkg-deb": ("dpkg-deb", "--version"), "tar": ("tar", "--version")}
"""Programs of the build machine that unpack and order packages, each with the command that prints its version."""

_WHOLE: Final = " ok installed"
_NOTE: Final = re.compile(rf"{NOTES}/([^/:]+?)(?::\w+)?\.(list|[a-z0-9]+)")


class PackageFile(Struct, frozen=True):
    """File in a root that dpkg keeps about a package (`package`); `lists`: it is the list of the package's paths."""

    package: str
    lists: bool


def cached_name(package: Package) -> str:
    """Return the file name that a package has in one of CACHES."""
    return f"{package.name}_{quote(package.version, safe='+~')}_{package.architecture}{SUFFIX}".replace("%3A", "%3a")


def in_archive(archive: Path, sha256: str) -> Path:
    """Return the path of a package file in a package archive folder, by the SHA-256 of its bytes."""
    return archive / sha256[:2] / f"{sha256}{SUFFIX}"


def states(status: str) -> dict[str, str]:
    """Return package name → state, such as `install ok installed`, from the text of dpkg's database."""
    return {name: fields["Status"] for name, fields in _packages(status) if "Status" in fields}


def is_whole(state: str) -> bool:
    """Return True if a package in this state of dpkg is installed completely."""
    return state.endswith(_WHOLE)


def installed_packages(status: str) -> list[str]:
    """Return `name=version` of all completely installed packages, sorted, from the text of dpkg's database."""
    return sorted(f"{name}={fields.get('Version', '')}" for name, fields in _packages(status) if is_whole(fields.get("Status", "")))


def _packages(status: str) -> Iterable[tuple[str, dict[str, str]]]:
    for block in status.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Status|Version): (.*)$", block, re.MULTILINE))
        if "Package" in fields:
            yield fields["Package"], fields


def digests(notes: Iterable[str]) -> dict[str, str]:
    """Return path → MD5 in hex from the texts of dpkg's `*.md5sums` files; paths are as the package has them."""
    rows = (line.partition("  ") for text in notes for line in text.splitlines())
    return {path: digest for digest, _, path in rows}


def note(path: str) -> PackageFile | None:
    """Return the package that a file in dpkg's folder belongs to, by the file's path in the root; None for any other path."""
    match = _NOTE.fullmatch(path)
    return PackageFile(match[1], match[2] == "list") if match else None


def listed_paths(text: str) -> list[str]:
    """Return the paths of a package from the text of its `.list` file, in a root whose /bin, /sbin and /lib are links into /usr."""
    return [_merged(path) for path in text.splitlines() if path not in ("/.", "")]


def _merged(path: str) -> str:
    plain = os.path.normpath(path).lstrip("/")
    return f"usr/{plain}" if re.match(r"(bin|sbin|lib\w*)/", plain) else plain
