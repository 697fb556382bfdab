"""Difference of two locks, shown before anything is built: added, removed and changed packages, and their vulnerabilities."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from steps.nodeimage.contract.resolved_recipe import Package
from workflows.nodeimage.lockfile import Lock
from workflows.nodeimage.vulnerabilities import Feed


class PackageChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Change of one package; without `before` it is added, without `after` removed. `fixed` are vulnerabilities that it loses,
    `new` those that it gets.
    """

    package: str
    layer: str
    before: str = ""
    after: str = ""
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Kind of the change: `added`, `removed` or `changed`."""
        return "added" if not self.before else "removed" if not self.after else "changed"


class LockDifference(Struct, frozen=True, kw_only=True):
    """Changes sorted by name.

    `left` are vulnerabilities that the newer lock still has; None without a feed. `guessed` are packages of the earlier lock whose
    source version is unknown, so that they may have had more vulnerabilities than shown.
    """

    changes: tuple[PackageChange, ...]
    size_before: int
    size_after: int
    fixed: tuple[str, ...] | None = None
    left: tuple[str, ...] | None = None
    guessed: tuple[str, ...] = ()


def between(before: Lock | None, after: Lock, feed: Feed | None = None) -> LockDifference:
    """Compare two locks; without an earlier one every package is added."""
    old, new = _by_name(before), _by_name(after)
    told = before is None or before.tells_sources
    had = {name: _open(feed, one, new.get(name), told=told) for name, one in old.items()}
    has = {name: _open(feed, one) for name, one in new.items()}
    changes = tuple(_changes(old, new, had, has))
    open_before, open_after = frozenset[str]().union(*had.values()), frozenset[str]().union(*has.values())
    return LockDifference(
        changes=changes,
        size_before=sum(package.size for package, _ in old.values()),
        size_after=sum(package.size for package, _ in new.values()),
        fixed=tuple(sorted(open_before - open_after)) if feed else None,
        left=tuple(sorted(open_after)) if feed else None,
        guessed=() if told or not feed else tuple(sorted(name for name, one in old.items() if not _is_known(one, new.get(name)))),
    )


_Placed = tuple[Package, str]
"""Package and its layer."""
_Open = Mapping[str, frozenset[str]]
"""Vulnerabilities by package."""


def _is_known(was: _Placed, now: _Placed | None) -> bool:
    return now is not None and was[0].sha256 == now[0].sha256


def _open(feed: Feed | None, one: _Placed, now: _Placed | None = None, *, told: bool = True) -> frozenset[str]:
    """Return the open vulnerabilities of a package; its source version is also taken from a newer lock with the very
    same package.
    """
    if feed is None:
        return frozenset()
    return feed.open_in(now[0]) if now and _is_known(one, now) else feed.open_in(one[0], told=told)


def _by_name(lock: Lock | None) -> dict[str, _Placed]:
    return {one.name: (one, layer.name) for layer in (lock.layers if lock else ()) for one in layer.packages}


def _changes(old: dict[str, _Placed], new: dict[str, _Placed], had: _Open, has: _Open) -> Iterator[PackageChange]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was and now and (was[0].version, was[0].sha256, was[1]) == (now[0].version, now[0].sha256, now[1]):
            continue
        before, after = had.get(name, frozenset()), has.get(name, frozenset())
        yield PackageChange(
            package=name,
            layer=(now or was or ("", ""))[1],
            before=was[0].version if was else "",
            after=now[0].version if now else "",
            fixed=tuple(sorted(before - after)),
            new=tuple(sorted(after - before)),
        )
