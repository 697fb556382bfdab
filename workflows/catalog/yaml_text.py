"""Convert data to deterministic YAML text: Helm values for manifests, and files that people read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def values_text(values: Mapping[str, Any]) -> str:
    """Return Helm values as YAML text with sorted keys, so that equal values give equal text."""
    return str(yaml.dump(plain_data(values), Dumper=_Dumper, sort_keys=True, default_flow_style=False, width=120))


def readable_yaml(value: Mapping[str, Any], *, sort: bool = False) -> str:
    """Return an object as YAML text for people: multi-line texts as blocks, lines not folded, keys sorted only with `sort`."""
    return str(yaml.dump(plain_data(value), Dumper=_Blocks, sort_keys=sort, default_flow_style=False, width=10**9))


def plain_data(value: Any) -> Any:
    """Return a copy with built-in dicts and lists instead of other mappings and tuples, as PyYAML's safe dumper needs them."""
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    return [plain_data(item) for item in value] if isinstance(value, list | tuple) else value


class _Dumper(yaml.SafeDumper):
    """A private subclass of PyYAML's safe dumper, because Hera changes the representers of the original for the whole process."""


class _Blocks(yaml.SafeDumper):
    """A safe YAML dumper that writes multi-line texts as blocks (`|`)."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, yaml.SafeDumper.represent_str)
_Blocks.add_representer(str, _text)
