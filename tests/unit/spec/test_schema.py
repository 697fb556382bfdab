"""The JSON Schema says what the models say: every key described, every example valid, every typo invalid."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from workflows import examples, spec
from workflows.spec.editor_schema import KINDS
from workflows.spec.starter import starter


def _properties(schema: Any, here: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(schema, dict):
        for name, value in schema.get("properties", {}).items():
            yield f"{here}.{name}", value
        for key, value in schema.items():
            yield from _properties(value, f"{here}.{key}")
    elif isinstance(schema, list):
        for value in schema:
            yield from _properties(value, here)


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_is_described(kind: str) -> None:
    schema = spec.json_schema(kind)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert [name for name, value in _properties(schema) if not _described(value, schema)] == []


def _described(value: dict[str, Any], schema: dict[str, Any]) -> bool:
    """A description stands at the key, or once at the section that it refers to."""
    section = schema["$defs"].get(str(value.get("$ref", "")).rpartition("/")[2], {})
    return bool(value.get("description") or section.get("description"))


@pytest.mark.parametrize("kind", KINDS)
def test_no_section_takes_unknown_keys(kind: str) -> None:
    schema = spec.json_schema(kind)
    for name, section in {**schema["$defs"], "root": schema}.items():
        if section.get("type") == "object":
            assert section["additionalProperties"] is False, name


@pytest.mark.parametrize("name", examples.names())
def test_every_example_is_valid(name: str) -> None:
    jsonschema.validate(yaml.safe_load(examples.path(name).read_text(encoding="utf-8")), spec.json_schema())


def test_the_starter_is_valid_and_a_typo_is_not() -> None:
    data = yaml.safe_load(starter())
    validator = jsonschema.Draft202012Validator(spec.json_schema())
    assert validator.is_valid(data)
    assert not validator.is_valid(data | {"ownr": "x"})
    assert not validator.is_valid(data | {"fabric": {"kind": "infinband"}})
    assert validator.is_valid(data | {"rke2": {"cni": "canal"}})
    assert validator.is_valid(data | {"rke2": {"cni": ["multus", "canal"]}})


def test_enums_and_patterns_are_there_for_editors() -> None:
    schema = spec.json_schema()
    assert schema["$defs"]["Fabric"]["properties"]["kind"]["enum"] == ["none", "infiniband", "roce"]
    assert "rke2r" in schema["$defs"]["Rke2Settings"]["properties"]["version"]["pattern"]
    assert schema["properties"]["name"]["examples"] == ["h200-16"]
