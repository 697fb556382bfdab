"""Parse YAML text into plain data and the line of every key; YAML features that no spec needs are refused.

Spec files are hostile until parsed. The text is read as YAML events and no object is constructed: no tags, no anchors or aliases
(so no expansion bombs), no duplicate or non-text keys, one document, limited size and depth. Scalars follow the YAML 1.2 core
schema: `no` and `1:30` are text, and so is `012`, which is a zero-padded name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from workflows.spec.errors import SpecError, format_value

LARGEST_BYTES = 1 << 20
LONGEST_VALUE = 1 << 16
DEEPEST = 32

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\Z")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,17}(?:[eE][-+]?[0-9]{1,2})?\Z")


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """A parsed file: its `data` (dict, list or scalar), and `lines` (path → line of its key, from 1).

    `written` maps the path of a number to its text in the file, since `1.10` is not 1.1.
    """

    data: object
    lines: dict[str, int] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> object:
        """The value of the key `kind`; None if the file has no such key or holds no mapping."""
        return self.data.get("kind") if isinstance(self.data, dict) else None


class BadDocument(Exception):
    """Exception for a text that is no YAML, or uses YAML features that specs may not use; `errors` are all errors found."""

    def __init__(self, errors: list[SpecError]) -> None:
        self.errors = errors
        super().__init__(errors)


def join(path: str, key: object) -> str:
    """Return the path of the child `key` of a path: `a` and `b` → `a.b`, `a` and 0 → `a[0]`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)


def value_at(values: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path in nested maps; None if a key of the path is missing."""
    here: Any = values
    for part in path.split("."):
        here = here.get(part) if isinstance(here, Mapping) else None
    return here


def parse(text: str) -> YamlDocument:
    """Return one YAML document, of at most 1 MiB, as data. Raises `BadDocument` with all errors."""
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST_BYTES:
        raise BadDocument([SpecError("", "the file is larger than 1 MiB", "give hosts as ranges, not one by one")])
    builder = _Builder()
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            builder.take(event)
    except yaml.YAMLError as error:
        raise BadDocument([*builder.errors, _syntax_error(error)]) from error
    if builder.errors:
        raise BadDocument(builder.errors)
    return YamlDocument(builder.root, builder.lines, builder.written)


def _syntax_error(error: yaml.YAMLError) -> SpecError:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable text"
    line = mark.line + 1 if mark else 0
    return SpecError("", f"not YAML: {problem}", "check the indentation and quotes at this line", line=line)


@dataclass(slots=True)
class _Frame:
    container: dict[str, object] | list[object]
    path: str
    key: str | None = None
    duplicate: bool = False


class _Builder:
    """Builder of plain data from YAML events. It has a stack of its own, so that deep nesting causes no recursion."""

    def __init__(self) -> None:
        self.root: object = None
        self.lines: dict[str, int] = {}
        self.written: dict[str, str] = {}
        self.errors: list[SpecError] = []
        self._stack: list[_Frame] = []
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        line = event.start_mark.line + 1 if event.start_mark else 0
        match event:
            case yaml.ScalarEvent():
                self._check_node(event, line)
                self._scalar(event, line)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._check_node(event, line)
                self._open({} if isinstance(event, yaml.MappingStartEvent) else [], line)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._stack.pop()
            case yaml.AliasEvent():
                self._refuse(line, "aliases (*name) are not accepted", "write the value out")
                if self._stack:
                    self._stack[-1].key = None
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._refuse(line, "the file holds more than one document", "keep one document a file")
            case _:
                pass

    def _check_node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent, line: int) -> None:
        if event.anchor:
            self._refuse(line, "anchors (&name) are not accepted", "write the value out where it is used")
        if event.tag:
            self._refuse(
                line, f"YAML tags ({format_value(event.tag)}) are not accepted", "remove the tag; the schema decides the type"
            )

    def _scalar(self, event: yaml.ScalarEvent, line: int) -> None:
        if len(event.value) > LONGEST_VALUE:
            raise BadDocument(
                [*self.errors, SpecError("", "a value is longer than 64 KiB", "put it in a file of its own", line=line)]
            )
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.container, dict) and frame.key is None:
            self._key(frame, event.value, line)
            return
        value = event.value if event.style else _resolve(event.value)
        path = self._place(value, line)
        if isinstance(value, int | float):
            self.written[path] = event.value

    def _key(self, frame: _Frame, key: str, line: int) -> None:
        path = join(frame.path, key)
        frame.duplicate = isinstance(frame.container, dict) and key in frame.container
        if frame.duplicate:
            first = self.lines.get(path, 0)
            self.errors.append(SpecError(path, f"the key is given twice (first on line {first})", "keep one of the two", line=line))
        else:
            self.lines[path] = line
        frame.key = key

    def _open(self, container: dict[str, object] | list[object], line: int) -> None:
        if len(self._stack) >= DEEPEST:
            raise BadDocument([*self.errors, SpecError("", f"nested deeper than {DEEPEST} levels", "flatten the file", line=line)])
        frame = self._stack[-1] if self._stack else None
        if frame is not None and isinstance(frame.container, dict) and frame.key is None:
            raise BadDocument(
                [*self.errors, SpecError(frame.path, "a key must be text", "write a plain word before the colon", line=line)]
            )
        path = self._place(container, line)
        self._stack.append(_Frame(container, path))

    def _place(self, value: object, line: int) -> str:
        if not self._stack:
            self.root = value
            return ""
        frame = self._stack[-1]
        if isinstance(frame.container, list):
            path = join(frame.path, len(frame.container))
            self.lines[path] = line
            frame.container.append(value)
            return path
        key, frame.key = frame.key or "", None
        if not frame.duplicate:
            frame.container[key] = value
        return join(frame.path, key)

    def _refuse(self, line: int, problem: str, fix: str) -> None:
        path = self._stack[-1].path if self._stack else ""
        self.errors.append(SpecError(path, problem, fix, line=line))


def _resolve(text: str) -> object:
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.match(text):
        return int(text)
    return float(text) if _FLOAT.match(text) else text
