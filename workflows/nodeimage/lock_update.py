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

PackageDownload = Callable[[Sequence[Package]], Mapping[str, Path]]
"""Function that downloads packages by digest and returns their paths, without those that cannot be fetched."""
MOST_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True)
class KeptLock:
    """The parts of an earlier lock that an update keeps.

    `layers` are the lowest layers, as locked. `packages` are all packages of the earlier lock with the `source` numbers of the new
    lock, except those that shall move. `update_command` moves packages, for hints; `download` fetches packages.
    """

    layers: tuple[tuple[Package, ...], ...] = ()
    packages: tuple[Package, ...] = ()
    update_command: str = ""
    download: PackageDownload = field(default=lambda _: {})

    def locked(self, apt_package: AptPackage) -> Package | None:
        """Return the package of the earlier lock with the same digest; None if there is none."""
        return next((package for package in self.packages if package.sha256 == apt_package.sha256), None)


class PackageInstaller:
    """Installs packages in one of apt's roots and keeps the versions of an earlier lock if possible.

    `usable` are the packages of the earlier lock whose repositories the root has.
    """

    def __init__(self, kept: KeptLock, root: apt_solver.AptRoot, usable: Sequence[Package]) -> None:
        self._kept = kept
        self._root = root
        self._versions = {package.name: package.version for package in usable}
        indexed = root.known([as_apt_package(package) for package in usable])
        unindexed = [package for package in usable if package.sha256 not in indexed]
        downloaded = kept.download(unindexed) if unindexed else {}
        if downloaded:
            root.offer(downloaded)
        self._missing = {package.name: package for package in unindexed if package.sha256 not in downloaded}
        if missing := [self._missing[package.name] for layer in kept.layers for package in layer if package.name in self._missing]:
            raise self._missing_error(missing)

    def install(self, packages: Sequence[str]) -> list[AptPackage]:
        """Return what apt would install, and count it as installed; locked versions stay if possible.

        Raises BuildError, FetchError.
        """
        if not self._kept.packages:
            solution = self._root.install(packages)
            self._root.installed(solution)
            return solution
        lower = self._root.versions
        if not (wanted := [name for name in packages if name not in lower]):  # apt would take what is named to the newest
            return []
        solution = self._install_moving_fewest(wanted, lower)
        if missing := [self._missing[pkg.name] for pkg in solution if pkg.name in self._missing and pkg.name in self._versions]:
            raise self._missing_error(missing)
        try:
            self._root.installed(solution)
        except apt_solver.Twice as error:
            raise BuildError(str(error), hint=f"move it there: {self._command_for(error.names)}; or {error.hint}") from error
        return solution

    def _install_moving_fewest(self, packages: Sequence[str], lower: Mapping[str, str]) -> list[AptPackage]:
        """Return apt's solution that moves the fewest packages, those of lower layers only if needed.

        Packages that were moved are held no longer. Packages of lower layers are held too, because apt takes them along if another
        package of their source is installed.
        """
        locked = {name: version for name, version in self._versions.items() if name not in lower}
        pinned = {**locked, **lower}

        def is_solvable(released: Collection[str]) -> bool:
            self._root.hold({name: version for name, version in pinned.items() if name not in released})
            return self._root.can_install(packages)

        if is_solvable(()):
            return self._root.install(packages)
        moved = {package.name for package in self._newest(packages) if pinned.get(package.name, package.version) != package.version}
        names = [name for name in (*sorted(locked), *sorted(lower)) if name in moved]
        released = fewest_released(names if is_solvable(names) else [*sorted(locked), *sorted(lower)], is_solvable)
        for name in released & locked.keys():
            del self._versions[name]
        is_solvable(released)
        return self._root.install(packages)

    def _newest(self, packages: Sequence[str]) -> list[AptPackage]:
        self._root.hold({})
        try:
            return self._root.install(packages)
        except FetchError as error:
            hint = f"if it is a layer below, as it is locked, that is in its way: {self._kept.update_command}"
            raise FetchError(str(error), hint=error.hint or hint) from error

    def _missing_error(self, missing: Sequence[Package]) -> BuildError:
        rest = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
        listed = ", ".join(f"{pkg.name}={pkg.version}" for pkg in missing[:MOST_NAMED])
        return BuildError(
            f"of what is locked, {listed}{rest} cannot be had any more: no repository has it, nor the archive of packages",
            hint=f"lock with --seed and a folder that has it, or let it move: {self._command_for([pkg.name for pkg in missing])}",
        )

    def _command_for(self, names: Sequence[str]) -> str:
        """Return the command that moves these packages to newer versions; if they are many, the command that moves all."""
        return " ".join([self._kept.update_command, *(f"--only {name}" for name in names if len(names) <= MOST_NAMED)])


def fewest_released(names: Sequence[str], is_solvable: Callable[[Collection[str]], bool]) -> set[str]:
    """Return the fewest of `names` whose release makes `is_solvable` True; the release of all must do so.

    The last name of the shortest prefix with a solution must go, and no name behind it. The search repeats with the names before
    it, until there is a solution without any.
    """
    released = set[str]()
    while not is_solvable(released):
        low, high = 0, len(names)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if is_solvable(released.union(names[:middle])) else (middle, high)
        released.add(names[high - 1])
        names = names[: high - 1]
    return released


def as_apt_package(package: Package) -> AptPackage:
    """Return a locked package in the form in which apt's solver returns packages."""
    return AptPackage(package.name, package.version, package.architecture, package.sha256, package.size, "")
