"""Update a lock and keep as much as possible of the earlier one: whole layers, and elsewhere every version that can stay.

Versions are held one by one. If apt finds no solution with all of them, the fewest possible are released. They are found by asking
apt repeatedly, not by reading its messages on dependencies, because messages and solver differ between releases.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.podimage import apt_solver
from workflows.podimage.apt_solver import AptPackage
from workflows.podimage.errors import BuildError, FetchError

Bring = Callable[[Sequence[Package]], Mapping[str, Path]]
"""Function that downloads packages by digest and returns their paths, without those that cannot be fetched."""
MOST_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """The parts of an earlier lock that an update keeps.

    `layers` are the lowest layers, as locked. `packages` are all packages of the earlier lock with the `source` numbers of the new
    lock, except those that shall move. `moving` is the command that moves packages, for hints; `bring` downloads packages.
    """

    layers: tuple[tuple[Package, ...], ...] = ()
    packages: tuple[Package, ...] = ()
    moving: str = ""
    bring: Bring = field(default=lambda _: {})

    def locked(self, found: AptPackage) -> Package | None:
        """Return the package of the earlier lock with the same digest; None if there is none."""
        return next((one for one in self.packages if one.sha256 == found.sha256), None)


class KeptPackages:
    """Installs packages in one of apt's roots and keeps the versions of an earlier lock if possible.

    `usable` are the packages of the earlier lock whose repositories the root has.
    """

    def __init__(self, keeping: Keeping, root: apt_solver.AptRoot, usable: Sequence[Package]) -> None:
        self._keeping = keeping
        self._root = root
        self._versions = {one.name: one.version for one in usable}
        known = root.known([as_found(package) for package in usable])
        lacking = [package for package in usable if package.sha256 not in known]
        brought = keeping.bring(lacking) if lacking else {}
        if brought:
            root.offer(brought)
        self._lost = {one.name: one for one in lacking if one.sha256 not in brought}
        if lost := [self._lost[one.name] for layer in keeping.layers for one in layer if one.name in self._lost]:
            raise self._gone(lost)

    def install(self, packages: Sequence[str]) -> list[AptPackage]:
        """Return what apt would install, and count it as installed; locked versions stay if possible.

        Raises BuildError, FetchError.
        """
        if not self._keeping.packages:
            found = self._root.install(packages)
            self._root.installed(found)
            return found
        below = self._root.versions
        if not (asked := [one for one in packages if one not in below]):  # apt would take what is named to the newest
            return []
        found = self._least(asked, below)
        if lost := [self._lost[one.name] for one in found if one.name in self._lost and one.name in self._versions]:
            raise self._gone(lost)
        try:
            self._root.installed(found)
        except apt_solver.Twice as error:
            raise BuildError(str(error), hint=f"move it there: {self._moving(error.names)}; or {error.hint}") from error
        return found

    def _least(self, packages: Sequence[str], below: Mapping[str, str]) -> list[AptPackage]:
        """Return apt's solution that moves the fewest packages, those of lower layers only if needed.

        Packages that were moved are held no longer. Packages of lower layers are held too, because apt takes them along if another
        package of their source is installed.
        """
        own = {name: version for name, version in self._versions.items() if name not in below}
        held = {**own, **below}

        def can(free: Collection[str]) -> bool:
            self._root.hold({name: version for name, version in held.items() if name not in free})
            return self._root.can_install(packages)

        if can(()):
            return self._root.install(packages)
        changed = {one.name for one in self._newest(packages) if held.get(one.name, one.version) != one.version}
        names = [one for one in (*sorted(own), *sorted(below)) if one in changed]
        free = fewest_released(names if can(names) else [*sorted(own), *sorted(below)], can)
        for name in free & own.keys():
            del self._versions[name]
        can(free)
        return self._root.install(packages)

    def _newest(self, packages: Sequence[str]) -> list[AptPackage]:
        self._root.hold({})
        try:
            return self._root.install(packages)
        except FetchError as error:
            held = f"if it is a layer below, as it is locked, that is in its way: {self._keeping.moving}"
            raise FetchError(str(error), hint=error.hint or held) from error

    def _gone(self, lost: Sequence[Package]) -> BuildError:
        more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
        named = ", ".join(f"{one.name}={one.version}" for one in lost[:MOST_NAMED])
        return BuildError(
            f"of what is locked, {named}{more} cannot be had any more: no repository has it, nor the archive of packages",
            hint=f"lock with --seed and a folder that has it, or let it move: {self._moving([one.name for one in lost])}",
        )

    def _moving(self, names: Sequence[str]) -> str:
        """Return the command that moves these packages to newer versions; if they are many, the command that moves all."""
        return " ".join([self._keeping.moving, *(f"--only {one}" for one in names if len(names) <= MOST_NAMED)])


def fewest_released(names: Sequence[str], can: Callable[[Collection[str]], bool]) -> set[str]:
    """Return the fewest of `names` that must be released so that `can` finds a solution; it must find one if all are.

    The last name of the shortest prefix with a solution must go, and no name behind it. The search repeats with the names before
    it, until there is a solution without any.
    """
    free = set[str]()
    while not can(free):
        few, many = 0, len(names)
        while many - few > 1:
            middle = (few + many) // 2
            few, many = (few, middle) if can(free.union(names[:middle])) else (middle, many)
        free.add(names[many - 1])
        names = names[: many - 1]
    return free


def as_found(package: Package) -> AptPackage:
    """Return a locked package in the form in which apt's solver returns packages."""
    return AptPackage(package.name, package.version, package.architecture, package.sha256, package.size, "")
