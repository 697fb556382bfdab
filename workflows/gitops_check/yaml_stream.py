"""Parse a stream of YAML documents of a user's repository into plain data with the line of every key.

The text is read as events and nothing is constructed: no tags. Unlike a spec, Helm values and manifests may use several documents,
anchors and merge keys, so aliases are resolved, and what they expand to counts against a limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

MOST_NODES = 200_000
"""Limit of values in one text, with aliases expanded: no file of a repository that people read comes near it."""
DEEPEST = 64
"""Limit of nesting; schemas of CRDs reach about 40."""
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {word: word.lower() in ("true", "yes", "on") for low in ("true", "false") for word in (low, low.title(), low.upper())}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"[-+]?[0-9]{1,17}\.[0-9]{1,17}(?:[eE][-+]?[0-9]{1,2})?\Z")
_MERGE = "<<"

Path = tuple[str | int, ...]


class BadStream(Exception):
    """Exception for a text that is no YAML, or is too large when expanded; with the line where that shows."""

    def __init__(self, problem: str, line: int) -> None:
        self.problem, self.line = problem, line
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class StreamDocument:
    """One document: its data, the line where it starts, lines of its keys and items by path, and keys that are written twice."""

    data: Any
    start: int
    lines: Mapping[Path, int] = field(default_factory=dict)
    duplicates: tuple[tuple[Path, int], ...] = ()

    def line(self, *path: str | int) -> int:
        """Return the line of a path, or of the nearest part above it that has one."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return self.start


def documents(text: str) -> list[StreamDocument]:
    """Return the documents of a text that hold something. Raises BadStream."""
    builder = _StreamBuilder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
        last = max(len(text.splitlines()), 1)  # the end of a text counts as a line of its own
        problem = str(getattr(error, "problem", None) or "unreadable text")
        raise BadStream(problem, min(mark.line + 1, last) if mark else 0) from error
    return builder.documents


@dataclass(slots=True)
class _Level:
    container: dict[str, Any] | list[Any]
    path: Path
    anchor: str | None
    first: int
    key: str | None = None
    height: int = 0


class _StreamBuilder:
    """Builder of documents from events, with a stack of its own, so that deep nesting causes no recursion."""

    def __init__(self) -> None:
        self.documents: list[StreamDocument] = []
        self._reset(0)
        self._nodes = 0

    def _reset(self, line: int) -> None:
        self._root: Any = None
        self._start = line
        self._stack: list[_Level] = []
        self._lines: dict[Path, int] = {}
        self._duplicates: list[tuple[Path, int]] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}

    def take(self, event: yaml.Event) -> None:
        """Take the next event. Raises BadStream."""
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.DocumentStartEvent():
                self._reset(line)
            case yaml.DocumentEndEvent():
                if self._root is not None:
                    self.documents.append(StreamDocument(self._root, self._start, self._lines, tuple(self._duplicates)))
            case yaml.ScalarEvent():
                self._scalar(event, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event, line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._close()
            case yaml.AliasEvent():
                self._alias(event, line)

    def _count(self, number: int, line: int) -> None:
        self._nodes += number
        if self._nodes > MOST_NODES:
            raise BadStream(f"more than {MOST_NODES} values with its aliases expanded", line)

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        _refuse_tag(event.tag, line)
        self._count(1, line)
        level = self._stack[-1] if self._stack else None
        if level is not None and isinstance(level.container, dict) and level.key is None:
            self._key(level, event.value, line)
            return
        value = event.value if event.style else _resolved(event.value)
        if event.anchor:
            self._anchors[event.anchor] = value, 1, 0
        self._place(value, line)

    def _key(self, level: _Level, key: str, line: int) -> None:
        assert isinstance(level.container, dict)
        path = (*level.path, key)
        if key in level.container and key != _MERGE:
            self._duplicates.append((path, line))
        self._lines[path] = line
        level.key = key

    def _open(self, event: yaml.CollectionStartEvent, line: int) -> None:
        _refuse_tag(event.tag, line)
        self._count(1, line)
        if len(self._stack) >= DEEPEST:
            raise BadStream(f"nested deeper than {DEEPEST} levels", line)
        level = self._stack[-1] if self._stack else None
        if level is not None and isinstance(level.container, dict) and level.key is None:
            raise BadStream("a key must be text", line)
        container: dict[str, Any] | list[Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        first = self._nodes
        self._stack.append(_Level(container, self._place(container, line), event.anchor, first))

    def _close(self) -> None:
        level = self._stack.pop()
        if isinstance(level.container, dict):
            _merge(level.container)
        self._raise(level.height + 1)
        if level.anchor:
            self._anchors[level.anchor] = level.container, self._nodes - level.first + 1, level.height + 1

    def _raise(self, height: int) -> None:
        if self._stack:
            self._stack[-1].height = max(self._stack[-1].height, height)

    def _alias(self, event: yaml.AliasEvent, line: int) -> None:
        if event.anchor not in self._anchors:
            raise BadStream(f"alias *{event.anchor} stands before its anchor has ended", line)
        level = self._stack[-1] if self._stack else None
        if level is not None and isinstance(level.container, dict) and level.key is None:
            raise BadStream("a key must be text", line)
        value, size, height = self._anchors[event.anchor]
        self._count(size, line)
        # aliases of aliases nest as deeply as brackets do
        if len(self._stack) + height > DEEPEST:
            raise BadStream(f"nested deeper than {DEEPEST} levels with its aliases expanded", line)
        self._raise(height)
        self._place(value, line)

    def _place(self, value: Any, line: int) -> Path:
        if not self._stack:
            self._root, self._start = value, line
            return ()
        level = self._stack[-1]
        if isinstance(level.container, list):
            path = (*level.path, len(level.container))
            self._lines[path] = line
            level.container.append(value)
            return path
        key, level.key = level.key or "", None
        level.container[key] = value
        return (*level.path, key)


def _merge(container: dict[str, Any]) -> None:
    """Carry out a merge key (`<<`): keys that stand beside it win."""
    merged = container.pop(_MERGE, None)
    for source in merged if isinstance(merged, list) else [merged]:
        if isinstance(source, dict):
            for key, value in source.items():
                container.setdefault(key, value)


def _refuse_tag(tag: str | None, line: int) -> None:
    if tag and tag != "!":
        raise BadStream(f"it has the YAML tag {tag[:40]}, which Kubernetes and Helm do not know", line)


def _resolved(text: str) -> object:
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text
