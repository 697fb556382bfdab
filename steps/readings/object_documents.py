"""Finds JSON and YAML documents in a captured text: dumps of objects, with a command line or prose before them."""

import json
import re
from typing import Any

import msgspec
import yaml
from msgspec import Struct

from steps.contract.canonical import UNREADABLE_JSON

LARGEST_YAML = 8 << 20
"""Most characters of a YAML text that are parsed; JSON may be longer."""
MOST_DOCUMENTS = 10_000
_ELISION = re.compile(r"^[ \t]*(?:\.\.\.|…)[ \t]*$", re.MULTILINE)
MOST_BROKEN = 200
"""Most beginnings of JSON that cannot be read before the rest of a text is given up."""
_COMMAND = re.compile(r"^[ \t]*[$#>] [^\n]*$", re.MULTILINE)
_BEGINNING = re.compile(r"\{|\[\s*(?:[\[\]{\"]|(?:-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null)\s*[,\]])")
"""Beginning of a JSON object or array. Lines of logs begin with a bracket too: `[2026-11-30T10:00:00.000] error: …`."""
_BLANKS = re.compile(r"\s*")
_OBJECT = re.compile(r"^(?:apiVersion|kind): \S|^[{\[][^\n]*\"(?:apiVersion|kind)\"|^[{\[][ \t]*\n[ \t]*[\"{]", re.MULTILINE)
_YAML_START = re.compile(r"^(?:---[^\n]*|[\"']?[A-Za-z_][\w.-]*[\"']?:(?: [^\n]*)?)$", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Documents(Struct, frozen=True):
    """The documents in a text, the lines between them, and how many beginnings of documents cannot be read."""

    values: list[Any]
    rest: str = ""
    broken: int = 0


def parse(text: str) -> Documents:
    """Return the documents in a text; none if it does not begin with JSON and is no YAML of objects."""
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        return _json(stripped)
    return Documents(_yaml(text) if len(text) <= LARGEST_YAML and _YAML_START.search(text) else [])


def holds_objects(text: str) -> bool:
    """Return True if a text has the beginning of a Kubernetes object, or of JSON over several lines."""
    return _OBJECT.search(text) is not None


def _json(text: str) -> Documents:
    try:
        return Documents([msgspec.json.decode(text.encode(errors="replace"))])
    except RecursionError:
        return Documents([], broken=1)
    except UNREADABLE_JSON:
        return _several_json(text)


def _several_json(text: str) -> Documents:
    """Return the JSON values of a text, each of one or several lines; lines between them may be of other programs."""
    decoder, values, rest, broken, arrays, at = json.JSONDecoder(), list[Any](), list[str](), 0, 0, 0
    while at < len(text) and len(values) < MOST_DOCUMENTS and broken < MOST_BROKEN:
        # each error of the decoder takes time that grows with its place in the text
        if _BEGINNING.match(text, at) and (text[at] == "{" or arrays < MOST_BROKEN):
            try:
                value, at = decoder.raw_decode(text, at)
            except (ValueError, RecursionError):
                broken += text[at] == "{"
                arrays += text[at] == "["
            else:
                values.append(value)
                at = _after_blanks(text, at)
                continue
        end = text.find("\n", at) + 1 or len(text)
        rest.append(text[at:end])
        at = _after_blanks(text, end)
    return Documents(values, "".join([*rest, text[at:]]), broken + (at < len(text)))


def _after_blanks(text: str, at: int) -> int:
    match = _BLANKS.match(text, at)
    return match.end() if match else at


def _yaml(text: str) -> list[Any]:
    """Return the mappings of a YAML text. Lines `...` by which an author left something out are dropped: YAML ends there."""
    plain = _COMMAND.sub("", _ELISION.sub("", _separated(text)))
    try:
        events = yaml.parse(plain, Loader=_Loader)
        # an alias repeats what its anchor holds, so that a small text could become a large one
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            return []
        documents = list(yaml.load_all(plain, Loader=_Loader))[:MOST_DOCUMENTS]
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        return []
    return [document for document in documents if isinstance(document, dict) and document]


def _separated(text: str) -> str:
    """Return a text of YAML with `---` where the next dump begins: after a command, or where an object's first key stands again."""
    lines: list[str] = []
    has_version = False
    for line in text.split("\n"):
        is_version = line.startswith("apiVersion:")
        if line.startswith("$ ") or (is_version and has_version):
            lines.append("---")
        has_version = is_version or (has_version and not line.startswith(("$ ", "---")))
        lines.append(line)
    return "\n".join(lines)


def items(documents: list[Any]) -> list[dict[str, Any]]:
    """Return the objects of documents; a List stands for its items."""
    objects: list[dict[str, Any]] = []
    for document in documents:
        if isinstance(document, dict):
            members = document.get("items")
            objects += [item for item in members if isinstance(item, dict)] if isinstance(members, list) else [document]
    return objects
