"""Data as YAML text, the same data as the same text: Helm values for a manifest, and files that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def values_text(values: Mapping[str, Any]) -> str:
    """Return Helm values as YAML text, keys sorted."""
    return str(yaml.dump(plain(values), Dumper=_Dumper, sort_keys=True, default_flow_style=False, width=120))


def readable(value: Mapping[str, Any], *, sort: bool = False) -> str:
    """Return an object as YAML text for people: keys in the order given, texts of several lines as blocks, no line folded."""
    return str(yaml.dump(plain(value), Dumper=_Blocks, sort_keys=sort, default_flow_style=False, width=10**9))


def plain(value: Any) -> Any:
    """Return built-in maps and lists in place of any other mapping or sequence type."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


class _Dumper(yaml.SafeDumper):
    """PyYAML's own safe dumper, out of reach of libraries that change its representers for the whole process (Hera does)."""


class _Blocks(yaml.SafeDumper):
    """The same, with texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, yaml.SafeDumper.represent_str)
_Blocks.add_representer(str, _text)
