"""The small part of JSONPath that printer columns use: `.a.b`, `.a\\.b`, `[0]`, `[*]`, `[?(@.type=="Ready")]`."""

import functools
import re
from typing import Any

_STEP = re.compile(r"""\.?((?:\\.|[^.\[\]\\])+)|\[(\d+|\*)\]|\[['"](.+?)['"]\]|\[\?\(@\.([\w.]+)\s*==\s*['"]([^'"]*)['"]\)\]""")


@functools.lru_cache(maxsize=512)
def _steps(path: str) -> tuple[re.Match[str], ...]:
    return tuple(_STEP.finditer(path.strip("{}")))


def _step(value: Any, step: re.Match[str]) -> list[Any]:
    name, index, quoted, key, wanted = step.groups()
    if name or quoted:
        field = quoted or re.sub(r"\\(.)", r"\1", name)
        return [value[field]] if isinstance(value, dict) and field in value else []
    if not isinstance(value, list):
        return []
    if key:
        return [element for element in value if isinstance(element, dict) and str(element.get(key)) == wanted]
    return value if index == "*" else value[int(index) : int(index) + 1]


def find(obj: Any, path: str) -> list[Any]:
    """All values at the path."""
    found = [obj]
    for step in _steps(path):
        found = [value for held in found for value in _step(held, step)]
    return found
