"""A tree against what lies in a folder: what is missing, extra or different, and how environments differ from each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workflows.gitops.layout import Layout
from workflows.spec.document import BadDocument, parse

LONGEST = 100
"""Characters that are shown of a line."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One file: `missing` and `extra` are seen from the folder; `differs` has the first line that does, counted from 1."""

    path: str
    what: str
    line: int = 0
    wanted: str = ""
    found: str = ""

    def __str__(self) -> str:
        if self.what != "differs":
            return f"{self.what}: {self.path}"
        return (
            f"differs: {self.path}, line {self.line}: has {self.found or 'nothing'!r}, the spec gives {self.wanted or 'nothing'!r}"
        )


def differences(layout: Layout, made: Mapping[str, str], found: Mapping[str, str]) -> list[Difference]:
    """Every file that differs, sorted by path. Never compared are other environments and what the site wrote into its overlay.

    That the overlay has a kustomization is: without one no stage can be built. Common files that other environments need too are
    told by `left_to_others` instead.
    """
    shared = {path for path in layout.common if path in found} if layout.others(found) else set()
    there = layout.has_overlay(found)
    wanted = {path: text for path, text in made.items() if path not in shared and not (there and _in_overlay(layout, path))}
    every = sorted({*wanted, *(path for path in found if layout.is_ours(path))})
    compared = (_difference(path, wanted.get(path), found.get(path)) for path in every)
    return [one for one in compared if one is not None]


def left_to_others(layout: Layout, made: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """A sentence for each common file that differs where other environments need it too: they would write over each other's."""
    names = layout.others(found)
    differing = (path for path in layout.common if path in found and found[path] != made.get(path))
    said = f"differs from what {layout.environment} renders; it is shared with {', '.join(names)}, so it is left as it is"
    return [f"{path} {said}" for path in differing] if names else []


def _in_overlay(layout: Layout, path: str) -> bool:
    return path.startswith(f"{layout.overlay}/")


def _difference(path: str, wanted: str | None, found: str | None) -> Difference | None:
    if wanted == found:
        return None
    if found is None:
        return Difference(path, "missing")
    if wanted is None:
        return Difference(path, "extra")
    mine, theirs = wanted.split("\n"), found.split("\n")
    shared = min(len(mine), len(theirs))
    at = next((number for number in range(shared) if mine[number] != theirs[number]), shared)
    lines = [text[at].strip() if at < len(text) else "" for text in (mine, theirs)]
    same = next((at for at, (one, other) in enumerate(zip(*lines, strict=False)) if one != other), 0)
    start = max(same - 30, 0) if max(map(len, lines)) > LONGEST else 0
    return Difference(path, "differs", at + 1, *(line[start : start + LONGEST] for line in lines))


def unlike(layout: Layout, files: Mapping[str, str]) -> list[str]:
    """A sentence for each way in which another environment differs from this one in more than values, revision and name."""
    charts: dict[str, dict[str, str]] = {}
    for path, text in files.items():
        environment, _, rest = path.removeprefix(f"{layout.environments}/").partition("/")
        folder, _, name = rest.rpartition("/")
        if path.startswith(f"{layout.environments}/") and folder.startswith("stages/") and name != "kustomization.yaml":
            charts.setdefault(environment, {})[f"{folder.removeprefix('stages/')}/{name.removesuffix('.yaml')}"] = _chart(text)
    mine = charts.pop(layout.environment, {})
    return [sentence for name in sorted(charts) for sentence in _against(layout.environment, mine, name, charts[name])]


def _against(own: str, mine: Mapping[str, str], name: str, theirs: Mapping[str, str]) -> Iterator[str]:
    for release in sorted({*mine, *theirs}):
        ours, other = mine.get(release), theirs.get(release)
        if ours != other:
            yield f"{release}: {name} has {other or 'no such release'}, {own} has {ours or 'no such release'}"


def _chart(text: str) -> str:
    """Kind, chart and version of an Application's file."""
    try:
        data = parse(text).data
    except BadDocument:
        return "a file that is no YAML"
    kind, source = _at(data, "kind"), _at(_at(data, "spec"), "sources")
    first = source[0] if isinstance(source, list) and source else _at(_at(data, "spec"), "source")
    shown = "" if kind == "Application" else f"{kind} "
    return f"{shown}{_at(first, 'repoURL')}/{_at(first, 'chart')} {_at(first, 'targetRevision')}"


def _at(data: object, key: str) -> Any:
    return data.get(key) if isinstance(data, dict) else None
