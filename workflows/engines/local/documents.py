"""The documents of a manifest's file, which anybody may have written: refused where too large, too deep, or grown by aliases."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from workflows.engines.local.errors import ManifestRefusedError
from workflows.render.grammar.findings import Finding

LARGEST_BYTES = 4 << 20
"""A Kubernetes object has at most 1.5 MiB; a file may hold several."""
_DEEPEST, _MOST = 100, 200_000
"""Levels, and values with those that aliases repeat: ten lines of aliases can stand for more than any memory holds."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> list[Any]:
    """All documents but empty ones. Raises ManifestRefusedError."""
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
        if len(raw) > LARGEST_BYTES:
            raise _refused(path, f"is larger than {LARGEST_BYTES >> 20} MiB")
        text = raw.decode()
        for problem in _problems(text):
            raise _refused(path, problem)
        return [document for document in yaml.load_all(text, Loader=_LOADER) if document is not None]
    except OSError as err:
        raise _refused(path, f"cannot be read: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise _refused(path, "cannot be read: it is not UTF-8 text") from err
    except yaml.YAMLError as err:
        raise _refused(path, f"cannot be read: it is not YAML: {_place(err)}") from err


def _refused(path: Path, sentence: str) -> ManifestRefusedError:
    return ManifestRefusedError([Finding(str(path), sentence)])


def _problems(text: str) -> Iterator[str]:
    """What stands against building the documents, told from the parser's events, which take no more room than the file."""
    sizes: dict[str | None, int] = {}
    open_: list[tuple[str | None, int]] = []
    total = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.AliasEvent):
            total += sizes.get(event.anchor, _MOST + 1)  # one that is still open holds itself
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, total))
            total += 1
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            sizes.update({event.anchor: 1} if event.anchor else {})
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = open_.pop()
            sizes.update({anchor: total - before} if anchor else {})
        if len(open_) > _DEEPEST:
            yield f"is nested deeper than {_DEEPEST} levels"
        if total > _MOST:
            yield f"holds more than {_MOST} values, those that its aliases repeat among them"


def _place(error: yaml.YAMLError) -> str:
    """What the parser says, in one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return " ".join(str(error).split())
