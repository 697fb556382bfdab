"""Read manifest files that are not trusted: documents that are too large, too deep, or inflated by YAML aliases are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from workflows.engines.local.errors import ManifestRefusedError
from workflows.render.grammar.findings import LintFinding

LARGEST_BYTES = 4 << 20
"""Largest accepted manifest file in bytes. A Kubernetes object has at most 1.5 MiB, and a file may hold several."""
_DEEPEST, _MOST = 100, 200_000
"""Largest accepted number of nesting levels, and of values including those that aliases repeat.

Ten lines of aliases can expand to more than any memory holds.
"""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> list[Any]:
    """Return all non-empty documents of a YAML file. Raises ManifestRefusedError if the file is unreadable or not accepted."""
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
    return ManifestRefusedError([LintFinding(str(path), sentence)])


def _problems(text: str) -> Iterator[str]:
    """Yield the reasons why a text must not be loaded as YAML.

    They are found in the parser's events, which take no more memory than the file.
    """
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
            anchor, total_before = open_.pop()
            sizes.update({anchor: total - total_before} if anchor else {})
        if len(open_) > _DEEPEST:
            yield f"is nested deeper than {_DEEPEST} levels"
        if total > _MOST:
            yield f"holds more than {_MOST} values, those that its aliases repeat among them"


def _place(error: yaml.YAMLError) -> str:
    """Return the YAML parser's message with its line number, on one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem or error.context}"
    return " ".join(str(error).split())
