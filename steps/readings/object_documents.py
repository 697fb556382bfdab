"""Finds JSON and YAML documents in a captured text: dumps of objects, with a command line or prose before them."""

import re
from typing import Any

import msgspec
import yaml

LARGEST_YAML = 8 << 20
"""Most characters of a YAML text that are parsed; JSON may be longer."""
MOST_DOCUMENTS = 10_000
_ELISION = re.compile(r"^[ \t]*(?:\.\.\.|…)[ \t]*$", re.MULTILINE)
_COMMAND = re.compile(r"^[ \t]*[$#>] [^\n]*$", re.MULTILINE)
_YAML_START = re.compile(r"^(?:---[^\n]*|[\"']?[A-Za-z_][\w.-]*[\"']?:(?: [^\n]*)?)$", re.MULTILINE)
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def parse(text: str) -> list[Any]:
    """Return the documents in a text, lists of objects taken apart; empty if it is no JSON and no YAML of objects."""
    stripped = text.strip()
    if stripped.startswith(("{", "[")):
        return _json(stripped)
    return _yaml(text) if len(text) <= LARGEST_YAML and _YAML_START.search(text) else []


def _json(text: str) -> list[Any]:
    try:
        return [msgspec.json.decode(text.encode(errors="replace"))]
    except RecursionError:
        return []
    except msgspec.MsgspecError:
        return _json_lines(text)


def _json_lines(text: str) -> list[Any]:
    """Return the objects of a text with one on each line; lines that are none are left out."""
    documents: list[Any] = []
    for line in text.splitlines()[: MOST_DOCUMENTS * 10]:
        if line.startswith("{") and line.rstrip().endswith("}") and len(documents) < MOST_DOCUMENTS:
            try:
                documents.append(msgspec.json.decode(line.encode(errors="replace")))
            except (msgspec.MsgspecError, RecursionError):
                continue
    return documents


def _yaml(text: str) -> list[Any]:
    """Return the mappings of a YAML text. Lines `...` by which an author left something out are dropped: YAML ends there."""
    plain = _COMMAND.sub("", _ELISION.sub("", text))
    try:
        events = yaml.parse(plain, Loader=_Loader)
        # an alias repeats what its anchor holds, so that a small text could become a large one
        if any(isinstance(event, yaml.AliasEvent) for event in events):
            return []
        documents = list(yaml.load_all(plain, Loader=_Loader))[:MOST_DOCUMENTS]
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError):
        return []
    return [document for document in documents if isinstance(document, dict) and document]


def items(documents: list[Any]) -> list[dict[str, Any]]:
    """Return the objects of documents; a List stands for its items."""
    objects: list[dict[str, Any]] = []
    for document in documents:
        if isinstance(document, dict):
            members = document.get("items")
            objects += [item for item in members if isinstance(item, dict)] if isinstance(members, list) else [document]
    return objects
