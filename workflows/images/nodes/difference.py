"""What a newer lock would change, said before anything is built: packages that come, go and move, and their vulnerabilities."""

from collections.abc import Iterator

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
    """All changes in order of their names. `left` are vulnerabilities that the newer lock still has; None without a feed."""

    changes: tuple[Change, ...]
    size_before: int
    size_after: int
    fixed: tuple[str, ...] | None = None
    left: tuple[str, ...] | None = None


def between(before: Lock | None, after: Lock, feed: Feed | None = None) -> Difference:
    """What differs; without an earlier lock everything comes."""
    old, new = _by_name(before), _by_name(after)
    changes = tuple(_changes(old, new, feed))
    open_before = feed.open_in_all(package for package, _ in old.values()) if feed else frozenset[str]()
    open_after = feed.open_in_all(package for package, _ in new.values()) if feed else frozenset[str]()
    return Difference(
        changes=changes,
        size_before=sum(package.size for package, _ in old.values()),
        size_after=sum(package.size for package, _ in new.values()),
        fixed=tuple(sorted(open_before - open_after)) if feed else None,
        left=tuple(sorted(open_after)) if feed else None,
    )


def _by_name(lock: Lock | None) -> dict[str, tuple[Package, str]]:
    return {one.name: (one, layer.name) for layer in (lock.layers if lock else ()) for one in layer.packages}


def _changes(old: dict[str, tuple[Package, str]], new: dict[str, tuple[Package, str]], feed: Feed | None) -> Iterator[Change]:
    for name in sorted(old.keys() | new.keys()):
        was, now = old.get(name), new.get(name)
        if was and now and (was[0].version, was[0].sha256, was[1]) == (now[0].version, now[0].sha256, now[1]):
            continue
        had = feed.open_in(was[0]) if feed and was else frozenset[str]()
        has = feed.open_in(now[0]) if feed and now else frozenset[str]()
        yield Change(
            package=name,
            layer=(now or was or ("", ""))[1],
            before=was[0].version if was else "",
            after=now[0].version if now else "",
            fixed=tuple(sorted(had - has)),
            new=tuple(sorted(has - had)),
        )
