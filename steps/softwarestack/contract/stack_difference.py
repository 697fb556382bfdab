"""Difference between two states of a software stack: versions, or a version and a lock, package by package. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from steps.contract.plain_text import count
from steps.softwarestack.contract.stack_release import StackManifest


class StackPart(Struct, frozen=True, kw_only=True):
    """A package as stacks are compared by it. `content` is the digest of its installed files; empty if it is only locked."""

    hash: str
    name: str
    version: str
    content: str = ""


class StackPackageChange(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Package that was added (`before` is empty), removed (`after` is empty), or changed between two states of a stack.

    `before` and `after` are versions. `rebuilt`: its version is the same, and what it was built from, or its bytes, are not.
    """

    name: str
    before: str = ""
    after: str = ""
    rebuilt: bool = False

    @property
    def line(self) -> str:
        """Return the change in words: `name@version`, or `name old → new`."""
        if self.rebuilt:
            return f"{self.name} {self.before} (built anew)"
        return (
            f"{self.name} {self.before} → {self.after}"
            if self.before and self.after
            else f"{self.name}@{self.before or self.after}"
        )


class StackValue(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Named property of a stack, such as its builder, with its value in each of two states."""

    name: str
    before: str = ""
    after: str = ""


class StackDifference(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All differences between a stack and a later one. `same`: users of both get the same.

    `modules` are module files that differ, by path. They are not compared with those of a lock, which has none.
    """

    same: bool
    packages: tuple[StackPackageChange, ...] = ()
    modules: tuple[StackValue, ...] = ()
    values: tuple[StackValue, ...] = ()

    @property
    def added(self) -> tuple[str, ...]:
        """Return the added packages in words."""
        return tuple(change.line for change in self.packages if not change.before)

    @property
    def removed(self) -> tuple[str, ...]:
        """Return the removed packages in words."""
        return tuple(change.line for change in self.packages if not change.after)

    @property
    def changed(self) -> tuple[str, ...]:
        """Return the changed packages in words."""
        return tuple(change.line for change in self.packages if change.before and change.after)

    @property
    def sentence(self) -> str:
        """Return the difference in one line."""
        if self.same:
            return "the stacks are the same"
        numbers = (("added", self.added), ("removed", self.removed), ("changed", self.changed))
        words = [f"{count(len(rows), 'package')} {word}" for word, rows in numbers if rows]
        words += [f"{count(len(self.modules), 'module file')} differ" if len(self.modules) > 1 else "1 module file differs"] * bool(
            self.modules
        )
        return f"what differs: {', '.join(words) or ', '.join(value.name for value in self.values)}"


def parts_of(manifest: StackManifest) -> tuple[StackPart, ...]:
    """Return the packages of a version."""
    return tuple(
        StackPart(
            hash=package.hash,
            name=part_name(package.name, package.target),
            version=package.version,
            content=package.content,
        )
        for package in manifest.built
    )


def part_name(name: str, target: str) -> str:
    """Return the name by which a package is compared: with its CPU target in a stack that is built for several."""
    return f"{name} ({target})" if target else name


def compare_manifests(before: StackManifest | None, after: StackManifest | None) -> StackDifference:
    """Return the difference between two versions; none if one of them is unknown."""
    if before is None or after is None:
        return StackDifference(same=before is after)
    olds, news = ({file.name: file.digest for file in manifest.files} for manifest in (before, after))
    return StackDifference(
        same=before.is_same(after),
        packages=tuple(package_changes(parts_of(before), parts_of(after))),
        modules=tuple(_values(olds, news)),
        values=tuple(_values(_properties(before), _properties(after))),
    )


def compare_parts(before: Iterable[StackPart], after: Iterable[StackPart]) -> StackDifference:
    """Return the difference between two states of which one at least is a lock, which has packages alone."""
    changes = tuple(package_changes(before, after))
    return StackDifference(same=not changes, packages=changes)


def package_changes(before: Iterable[StackPart], after: Iterable[StackPart]) -> Iterator[StackPackageChange]:
    """Yield the packages that differ, by name.

    A stack may have several packages of one name. Those that both states have are left out; if one is left on either side, it
    counts as changed, else all that are left count as removed and added.
    """
    olds, news = _by_name(before), _by_name(after)
    for name in sorted({*olds, *news}):
        old = [part for part in olds[name] if not any(_is_same(part, other) for other in news[name])]
        new = [part for part in news[name] if not any(_is_same(part, other) for other in olds[name])]
        if len(old) == len(new) == 1:
            rebuilt = old[0].version == new[0].version
            yield StackPackageChange(name=name, before=old[0].version, after=new[0].version, rebuilt=rebuilt)
            continue
        yield from (StackPackageChange(name=name, before=part.version) for part in old)
        yield from (StackPackageChange(name=name, after=part.version) for part in new)


def _is_same(part: StackPart, other: StackPart) -> bool:
    return part.hash == other.hash and (part.content == other.content or not (part.content and other.content))


def _by_name(parts: Iterable[StackPart]) -> defaultdict[str, list[StackPart]]:
    groups = defaultdict[str, list[StackPart]](list)
    for part in parts:
        groups[part.name].append(part)
    return groups


def _properties(manifest: StackManifest) -> dict[str, str]:
    words = ("name", "root", "backend", "release", "naming", "target", "builder", "lock", "origin", "revision", "view")
    return {word: str(getattr(manifest, word)) for word in words} | {"targets": " ".join(manifest.targets)}


def _values(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[StackValue]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield StackValue(name=name, before=before.get(name, ""), after=after.get(name, ""))
