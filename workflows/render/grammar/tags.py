"""Tags in texts (`{{...}}`): find them, replace them, and walk over the strings of a document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

_TAG = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class Tag(NamedTuple):
    """A tag: the text between the braces; `expression` is true for `{{=`."""

    text: str
    expression: bool

    @property
    def body(self) -> str:
        """Return the expression without its `=`, or the trimmed name."""
        return self.text[1:] if self.expression else self.text.strip()


def tags(text: str) -> list[Tag]:
    """Return all tags of `text` in order."""
    return [Tag(inner, inner.startswith("=")) for inner in _TAG.findall(text)]


def replace(text: str, resolve: Callable[[Tag], str | None]) -> str:
    """Replace each tag of `text` by the result of `resolve`; None leaves the tag unchanged."""
    if "{{" not in text:
        return text

    def replacement_of(match: re.Match[str]) -> str:
        replacement = resolve(Tag(match[1], match[1].startswith("=")))
        return match[0] if replacement is None else replacement

    return _TAG.sub(replacement_of, text)


def is_pure(text: str) -> str | None:
    """Return the name in a text that is exactly one plain reference (`{{ a.b }}`), else None."""
    match = _TAG.fullmatch(text)
    if match is None or match[1].startswith("=") or "{{" in match[1]:
        return None
    return match[1].strip()


def balanced(text: str) -> bool:
    """Return True if every `{{` has its `}}` and no tag is inside another."""
    return "{{" not in _TAG.sub("", text) and all("{{" not in tag.text for tag in tags(text))


def strings(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every string of nested dicts and lists with its path (`a.b[0].c`), in document order."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from strings(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from strings(item, f"{path}[{index}]")
