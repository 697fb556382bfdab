"""Keeps what an earlier lock says while another one is made: whole layers, and elsewhere every version that can stay.

Versions are held one by one: where apt finds no answer with all of them, the fewest are let go that give it one. That is found by
asking apt again and again, and not by reading what it says of dependencies: its words and its solver differ between releases.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from steps.contract.image.recipe import Package
from workflows.images import apt
from workflows.images.apt import Found
from workflows.images.errors import BuildError, FetchError

Bring = Callable[[Sequence[Package]], Mapping[str, Path]]
"""Has packages on this machine, and says where, by their digests; those that are not to be had are missing in the answer."""
MOST_NAMED: Final = 5


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What stays. `layers` are the lowest ones, as they are locked; `packages` are all of the earlier lock, theirs too, whose
    `source` is that of the new lock, without those that are to move. `moving` is the command that moves packages."""

    layers: tuple[tuple[Package, ...], ...] = ()
    packages: tuple[Package, ...] = ()
    moving: str = ""
    bring: Bring = field(default=lambda _: {})

    def locked(self, found: Found) -> Package | None:
        """A package of the earlier lock that is this very one."""
        return next((one for one in self.packages if one.sha256 == found.sha256), None)


class Held:
    """The packages of an earlier lock in one of apt's roots; `usable` are those that may be installed there."""

    def __init__(self, keeping: Keeping, root: apt.Root, usable: Sequence[Package]) -> None:
        self._keeping = keeping
        self._root = root
        self._versions = {one.name: one.version for one in usable}
        lacking = [one for one, known in zip(usable, self._known(usable), strict=True) if not known]
        brought = keeping.bring(lacking) if lacking else {}
        if brought:
            root.offer(brought)
        self._lost = {one.name: one for one in lacking if one.sha256 not in brought}
        if lost := [self._lost[one.name] for layer in keeping.layers for one in layer if one.name in self._lost]:
            raise self._gone(lost)

    def _known(self, packages: Sequence[Package]) -> list[bool]:
        known = self._root.known([as_found(one) for one in packages])
        return [one.sha256 in known for one in packages]

    def install(self, packages: Sequence[str]) -> list[Found]:
        """What would be installed, and counts as such from now on; all that can keep its version keeps it. Raises BuildError,
        FetchError."""
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
        except apt.Twice as error:
            raise BuildError(str(error), hint=f"move it there: {self._moving(error.names)}; or {error.hint}") from error
        return found

    def _least(self, packages: Sequence[str], below: Mapping[str, str]) -> list[Found]:
        """The answer with the fewest packages that move, of those in layers below only where it has to be; what moves is held no
        longer. What is below is held as well: apt takes it along where another package of the same source comes."""
        own = {name: version for name, version in self._versions.items() if name not in below}
        held = {**own, **below}

        def can(free: Collection[str]) -> bool:
            self._root.hold({name: version for name, version in held.items() if name not in free})
            return self._root.can_install(packages)

        if can(()):
            return self._root.install(packages)
        changed = {one.name for one in self._newest(packages) if held.get(one.name, one.version) != one.version}
        names = [one for one in (*sorted(own), *sorted(below)) if one in changed]
        free = fewest(names if can(names) else [*sorted(own), *sorted(below)], can)
        for name in free & own.keys():
            del self._versions[name]
        can(free)
        return self._root.install(packages)

    def _newest(self, packages: Sequence[str]) -> list[Found]:
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
        """The command that moves these packages; where they are many, that which moves all."""
        return " ".join([self._keeping.moving, *(f"--only {one}" for one in names if len(names) <= MOST_NAMED)])


def fewest(names: Sequence[str], can: Callable[[Collection[str]], bool]) -> set[str]:
    """The fewest of `names` that have to be let go so that there is an answer, which there is with all of them let go.

    The name that ends the shortest run of them with which there is one has to go. Those behind it have not; of those before it the
    same is asked again, until there is an answer without any.
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


def as_found(package: Package) -> Found:
    """A locked package as apt names it."""
    return Found(package.name, package.version, package.architecture, package.sha256, package.size, "")
