"""Size classes of packages: estimated build time, make jobs and memory, read from `package_classes.yaml`."""

import fnmatch
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

_DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class PackageClass:
    """One size class: estimated seconds of a build with `jobs` make jobs, and its memory request in GiB."""

    name: str
    seconds: int
    jobs: int
    memory_gib: int


@dataclass(frozen=True)
class PackageClasses:
    """All size classes, and which packages belong to them, by name and by pattern."""

    by_name: Mapping[str, PackageClass]
    by_pattern: tuple[tuple[str, PackageClass], ...]
    default: PackageClass
    _known: dict[str, PackageClass] = field(default_factory=dict, repr=False, compare=False)

    def of(self, package: str) -> PackageClass:
        """Return the class of a package by its name; names win over patterns, and an earlier pattern over a later one."""
        size = self._known.get(package) or self.by_name.get(package)
        if size is None:
            matching = (size for pattern, size in self.by_pattern if fnmatch.fnmatchcase(package, pattern))
            size = self._known[package] = next(matching, self.default)
        return size


@functools.cache
def shipped() -> PackageClasses:
    """Return the classes that bringup ships."""
    data = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
    names, patterns = dict[str, PackageClass](), list[tuple[str, PackageClass]]()
    classes = {}
    for name, fields in data.items():
        listed = fields.pop("names")
        classes[name] = PackageClass(name, **fields)
        for entry in listed:
            if "*" in entry:
                patterns.append((entry, classes[name]))
            else:
                names.setdefault(entry, classes[name])
    return PackageClasses(names, tuple(patterns), classes[_DEFAULT])
