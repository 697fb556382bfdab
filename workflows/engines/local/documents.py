"""Read manifest files that are not trusted: documents that are too large, too deep, or inflated by YAML aliases are refused.

Scalars mean what they mean to kubectl, whose YAML reader (sigs.k8s.io/yaml, go-yaml 2) differs from PyYAML: `y` and `n` are
booleans and `1e3` is a number, but `12:30` and `2026-01-02` are texts. So the linter sees the values that kubectl would send.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import yaml

from workflows.engines.local.errors import ManifestRefusedError
from workflows.render.grammar.findings import LintFinding

LARGEST_BYTES = 4 << 20
"""Largest accepted manifest file in bytes. A Kubernetes object has at most 1.5 MiB, and a file may hold several."""
_DEEPEST, _MOST = 100, 200_000
"""Largest accepted number of nesting levels, and of values including those that aliases repeat.

Ten lines of aliases can expand to more than any memory holds.
"""
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TRUE, _FALSE = ("y", "yes", "true", "on"), ("n", "no", "false", "off")
_BOOLEAN = {spelling: word in _TRUE for word in (*_TRUE, *_FALSE) for spelling in (word, word.capitalize(), word.upper())}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_LONGEST_INT = 70  # characters; 64 bits in binary need 66, and a longer number is a float, as for kubectl
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*|0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+)")
_SPECIAL = {
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{f"{sign}{word}": float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}


class _KubectlLoader(_BASE):  # type: ignore[misc]  # the base is one of two classes
    """YAML loader that reads plain scalars as kubectl does, and refuses a key that stands twice in one mapping."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


def _number(text: str) -> int | float | None:
    digits = text.replace("_", "")
    if text in _SPECIAL:
        return _SPECIAL[text]
    if _INT.fullmatch(digits) and len(digits) <= _LONGEST_INT:
        return int(re.sub(r"^([-+]?)0([0-7]+)$", r"\g<1>0o\2", digits), 0)
    return float(digits) if _FLOAT.fullmatch(digits) else None


def _scalar(loader: Any, node: yaml.ScalarNode) -> Any:
    """Return the value of a scalar; only a plain one without a tag can be something else than text."""
    text: str = loader.construct_scalar(node)
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    number = _number(text)
    return text if number is None else number


def _mapping(loader: Any, node: yaml.MappingNode) -> Iterator[dict[str, Any]]:
    """Build an object whose keys are texts, as in JSON: `on:` is the key `true`."""
    result: dict[str, Any] = {}
    yield result
    seen: set[str] = set()
    for key, _ in node.value:
        if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
            raise yaml.constructor.ConstructorError(None, None, f"the key {key.value} stands twice in one object", key.start_mark)
        seen.add(str(key.value))
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        if not isinstance(key, (str, bool, int, float)):
            raise yaml.constructor.ConstructorError(None, None, "a key is not a text", key_node.start_mark)
        text = str(key).lower() if isinstance(key, bool) else str(key)
        result[text] = loader.construct_object(value_node, deep=True)


_PLAIN = "!plain"
_KubectlLoader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])
_KubectlLoader.add_implicit_resolver(
    _PLAIN,
    re.compile(rf"^(?:~|null|Null|NULL||{'|'.join(_BOOLEAN)}|[-+.0-9][-+.0-9a-zA-Z_]*)$"),
    ["", *"~nNyYtTfFoO", *"-+.0123456789"],
)
_KubectlLoader.add_constructor(_PLAIN, _scalar)
_KubectlLoader.add_constructor("tag:yaml.org,2002:map", _mapping)
_LOADER: Any = _KubectlLoader


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
