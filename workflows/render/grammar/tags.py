"""Find and replace tags (`{{...}}`) in texts, and walk over the strings of a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class Tag(NamedTuple):
    """A tag in a text: `text` is what stands between the braces; `expression` is true for `{{=`."""

    text: str
    expression: bool

    @property
    def body(self) -> str:
        """Return the tag's expression without its `=`, or its name without surrounding spaces."""
        return self.text[1:] if self.expression else self.text.strip()


def tags(text: str) -> list[Tag]:
    """Return all tags of a text in their order."""
    return [Tag(inner, inner.startswith("=")) for inner in _TAG.findall(text)]


def replace(text: str, resolve: Callable[[Tag], str | None]) -> str:
    """Return the text with each tag replaced by the result of `resolve`, or left unchanged if the result is None."""
    if "{{" not in text:
        return text

    def replacement_of(match: re.Match[str]) -> str:
        replacement = resolve(Tag(match[1], match[1].startswith("=")))
        return match[0] if replacement is None else replacement

    return _TAG.sub(replacement_of, text)


def is_pure(text: str) -> str | None:
    """Return the name if the text is exactly one plain reference such as `{{ a.b }}`, else None."""
    match = _TAG.fullmatch(text)
    if match is None or match[1].startswith("=") or "{{" in match[1]:
        return None
    return match[1].strip()


def balanced(text: str) -> bool:
    """Return True if every `{{` has its `}}` and no tag lies inside another."""
    return "{{" not in _TAG.sub("", text) and all("{{" not in tag.text for tag in tags(text))


def keys(value: Any) -> Iterator[str]:
    """Yield the keys of all nested dicts as texts."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from keys(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from keys(item)


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield path (`a.b[0].c`) and text of every string in nested dicts and lists, in document order."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from strings(item, f"{path}[{index}]")
