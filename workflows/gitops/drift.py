"""Compare the rendered Git files with the files of a folder, and the chart versions of environments with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from workflows.gitops.layout import Layout
from workflows.spec.parsing.document import BadDocument, parse

LONGEST = 100
"""Largest number of characters shown of a differing line."""


@dataclass(frozen=True, slots=True)
class TreeDifference:
    """A file whose text in a folder is not the rendered one; printing it gives a sentence.

    `what` is `missing` or `extra` (in the folder) or `differs`. For `differs`, `line` is the first differing line, counted from 1,
    with its rendered text `wanted` and its text `actual` in the folder.
    """

    path: str
    what: str
    line: int = 0
    wanted: str = ""
    actual: str = ""

    def __str__(self) -> str:
        if self.what != "differs":
            return f"{self.what}: {self.path}"
        return (
            f"differs: {self.path}, line {self.line}: has {self.actual or 'nothing'!r}, the spec gives {self.wanted or 'nothing'!r}"
        )


def differences(layout: Layout, made: Mapping[str, str], present: Mapping[str, str]) -> list[TreeDifference]:
    """Return every differing file between the rendered files `made` and the folder's files `present`, sorted by path.

    Files of other environments and of the site's overlay are not compared. Only a missing kustomization file of the overlay counts,
    since no stage can be built without it. `shared_file_notes` reports files that several environments share.
    """
    shared = {path for path in layout.common if path in present} if layout.others(present) else set()
    # Python takes an empty tuple for no beginning at all
    left_out = (f"{layout.overlay}/",) if layout.has_overlay(present) else ()
    expected = {path: text for path, text in made.items() if path not in shared and not path.startswith(left_out)}
    every = sorted({*expected, *(path for path in present if layout.is_ours(path))})
    compared = (_difference(path, expected.get(path), present.get(path)) for path in every)
    return [difference for difference in compared if difference is not None]


def shared_file_notes(layout: Layout, made: Mapping[str, str], present: Mapping[str, str]) -> list[str]:
    """Return a sentence for each differing file (README, ApplicationSet) that other environments share; runs do not change it."""
    names = layout.others(present)
    differing = (path for path in layout.common if path in present and present[path] != made.get(path))
    sentence = f"differs from what {layout.environment} renders; it is shared with {', '.join(names)}, so it is left as it is"
    return [f"{path} {sentence}" for path in differing] if names else []


def _difference(path: str, expected: str | None, present: str | None) -> TreeDifference | None:
    if expected == present:
        return None
    if present is None or expected is None:
        return TreeDifference(path, "missing" if present is None else "extra")
    mine, theirs = expected.split("\n"), present.split("\n")
    shared = min(len(mine), len(theirs))
    at = next((number for number in range(shared) if mine[number] != theirs[number]), shared)
    lines = [text[at].strip() if at < len(text) else "" for text in (mine, theirs)]
    same = next((at for at, (left, right) in enumerate(zip(*lines, strict=False)) if left != right), 0)
    start = max(same - 30, 0) if max(map(len, lines)) > LONGEST else 0
    return TreeDifference(path, "differs", at + 1, *(line[start : start + LONGEST] for line in lines))


def environment_differences(layout: Layout, files: Mapping[str, str]) -> list[str]:
    """Return a sentence for each release whose chart, version or kind in another environment is not this environment's."""
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
    """Return repository, chart and version in the file of an Application as one text; a kind other than Application comes first."""
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
