"""What a newer lock would change, said before anything is built: packages that come, go and move, and their vulnerabilities."""

from collections.abc import Iterator, Mapping

from msgspec import Struct

from steps.contract.image.recipe import Package
from workflows.images.nodes.cves import Feed
from workflows.images.nodes.lockfile import Lock


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One package; without `before` it comes, without `after` it goes. `fixed` are vulnerabilities that it has no longer, `new`
    those that it has from then on."""

    package: str
    layer: str
    before: str = ""
    after: str = ""
    fixed: tuple[str, ...] = ()
    new: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """`added`, `removed` or `changed`."""
        return "added" if not self.before else "removed" if not self.after else "changed"


class Difference(Struct, frozen=True, kw_only=True):
    """All changes in order of their names. `left` are vulnerabilities that the newer lock still has; None without a feed. `guessed`
    are packages of the earlier lock whose source's version nobody knows: what they had may be less than is said."""

    changes: tuple[Change, ...]
    size_before: int
    size_after: int
    fixed: tuple[str, ...] | None = None
    left: tuple[str, ...] | None = None
    guessed: tuple[str, ...] = ()


def between(before: Lock | None, after: Lock, feed: Feed | None = None) -> Difference:
    """What differs; without an earlier lock everything comes."""
    old, new = _by_name(before), _by_name(after)
    told = before is None or before.tells_sources
    had = {name: _open(feed, one, new.get(name), told=told) for name, one in old.items()}
    has = {name: _open(feed, one) for name, one in new.items()}
    changes = tuple(_changes(old, new, had, has))
    open_before, open_after = frozenset[str]().union(*had.values()), frozenset[str]().union(*has.values())
    return Difference(
        changes=changes,
        size_before=sum(package.size for package, _ in old.values()),
        size_after=sum(package.size for package, _ in new.values()),
        fixed=tuple(sorted(open_before - open_after)) if feed else None,
        left=tuple(sorted(open_after)) if feed else None,
        guessed=() if told or not feed else tuple(sorted(name for name, one in old.items() if not _is_known(one, new.get(name)))),
    )


_Placed = tuple[Package, str]
"""A package and its layer."""
_Open = Mapping[str, frozenset[str]]
"""Vulnerabilities by package."""


def _is_known(was: _Placed, now: _Placed | None) -> bool:
    return now is not None and was[0].sha256 == now[0].sha256


def _open(feed: Feed | None, one: _Placed, now: _Placed | None = None, *, told: bool = True) -> frozenset[str]:
    """What is open in a package; of which version of its source it is, a newer lock with the very same package says as well."""
    if feed is None:
        return frozenset()
    return feed.open_in(now[0]) if now and _is_known(one, now) else feed.open_in(one[0], told=told)


def _by_name(lock: Lock | None) -> dict[str, _Placed]:
    return {one.name: (one, layer.name) for layer in (lock.layers if lock else ()) for one in layer.packages}


def _changes(old: dict[str, _Placed], new: dict[str, _Placed], had: _Open, has: _Open) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was and now and (was[0].version, was[0].sha256, was[1]) == (now[0].version, now[0].sha256, now[1]):
            continue
        before, after = had.get(name, frozenset()), has.get(name, frozenset())
        yield Change(
            package=name,
            layer=(now or was or ("", ""))[1],
            before=was[0].version if was else "",
            after=now[0].version if now else "",
            fixed=tuple(sorted(before - after)),
            new=tuple(sorted(after - before)),
        )
