"""One view of a type for all that must know it: decoding, pruning, validation, patches and apply.

A `Schema` wraps one OpenAPI node, of a built-in kind or of a CRD, and answers how its children are merged. Children are made when
first asked for: the largest CRD has 1.2 MB of schema, of which one object touches little.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

_PREFIX = "#/definitions/"
Raw = Mapping[str, Any]


class ListType(Enum):
    """How two versions of a list are merged (`x-kubernetes-list-type`)."""

    ATOMIC = "atomic"
    SET = "set"
    MAP = "map"


class Types:
    """The named types that `$ref` points to. Each is wrapped once."""

    def __init__(self, definitions: Raw) -> None:
        self._definitions = definitions
        self._made: dict[str, Schema] = {}

    def __getitem__(self, name: str) -> "Schema":
        if name not in self._made:
            self._made[name] = Schema(self._definitions[name], self)
        return self._made[name]

    def schema(self, raw: Raw) -> "Schema":
        """The schema of a node, with its `$ref` followed; marks beside the `$ref` win."""
        name = raw.get("$ref")
        if not isinstance(name, str):
            return Schema(raw, self)
        name = name.removeprefix(_PREFIX)
        if len(raw) == 1:
            return self[name]
        return Schema({**self[name].raw, **{key: value for key, value in raw.items() if key != "$ref"}}, self)


class Schema:
    """One node of an OpenAPI schema and the Kubernetes marks on it."""

    __slots__ = ("_items", "_made", "_rest", "_types", "format", "nullable", "preserve", "properties", "raw", "required", "type")

    def __init__(self, raw: Raw, types: Types) -> None:
        self.raw = raw
        self.type: str = raw.get("type", "")
        self.format: str = raw.get("format", "")
        self.nullable: bool = bool(raw.get("nullable"))
        self.preserve: bool = bool(raw.get("x-kubernetes-preserve-unknown-fields"))
        self.properties: Raw = raw.get("properties") or {}
        self.required: tuple[str, ...] = tuple(raw.get("required") or ())
        self._types = types
        self._made: dict[str, Schema] = {}
        self._items: Schema | None = None
        self._rest: Schema | None = None

    def field(self, name: str) -> "Schema | None":
        """The schema of a declared field."""
        made = self._made.get(name)
        if made is None and name in self.properties:
            made = self._made[name] = self._types.schema(self.properties[name])
        return made

    @property
    def rest(self) -> "Schema | None":
        """The schema of the values of a map (`additionalProperties`)."""
        if self._rest is None:
            raw = self.raw.get("additionalProperties")
            self._rest = self._types.schema(raw) if isinstance(raw, Mapping) else ANY if raw else None
        return self._rest

    @property
    def items(self) -> "Schema":
        """The schema of a list's elements."""
        if self._items is None:
            raw = self.raw.get("items")
            self._items = self._types.schema(raw) if isinstance(raw, Mapping) else ANY
        return self._items

    def branches(self, junctor: str) -> "tuple[Schema, ...]":
        """The schemas below `allOf`, `anyOf`, `oneOf` or `not`."""
        raw = self.raw.get(junctor)
        if not raw:
            return ()
        return tuple(self._types.schema(node) for node in (raw if isinstance(raw, list) else [raw]))

    def child(self, name: str) -> "Schema":
        """The schema of any field, declared or not."""
        return self.field(name) or self.rest or ANY

    @property
    def int_or_string(self) -> bool:
        """Whether both a number and a string are good."""
        return self.format == "int-or-string" or bool(self.raw.get("x-kubernetes-int-or-string"))

    @property
    def embedded(self) -> bool:
        """Whether the node is a whole Kubernetes object with apiVersion, kind and metadata."""
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @property
    def open(self) -> bool:
        """Whether the node is an object of which nothing is declared, kept as it is."""
        return not self.properties and "additionalProperties" not in self.raw and not self.preserve

    @property
    def atomic_map(self) -> bool:
        """Whether the object has one owner as a whole. Undeclared content of built-in types (RawExtension) has."""
        return self.raw.get("x-kubernetes-map-type") == "atomic" or (self.open and self is not ANY)

    @property
    def list_type(self) -> ListType:
        """How apply merges this list; built-in types of old only carry the patch strategy (kube-openapi `schemaconv`)."""
        named = self.raw.get("x-kubernetes-list-type")
        if named:
            return ListType(named)
        if "merge" in self.patch_strategy:
            return ListType.MAP if self.merge_key else ListType.SET
        return ListType.ATOMIC

    @property
    def map_keys(self) -> tuple[str, ...]:
        """The fields that identify an element of a list of type map."""
        keys = self.raw.get("x-kubernetes-list-map-keys")
        return tuple(keys) if keys else (self.merge_key,) if self.merge_key else ()

    @property
    def merge_key(self) -> str:
        """The key of a strategic merge of this list; empty when it has none."""
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    @property
    def patch_strategy(self) -> frozenset[str]:
        """The strategic merge strategies: `merge`, `retainKeys`."""
        return frozenset(filter(None, str(self.raw.get("x-kubernetes-patch-strategy", "")).split(",")))

    def element_key(self, element: Any) -> tuple[Any, ...] | None:
        """The identity of an element of a list of type map, schema defaults included; None when a key is missing."""
        if not isinstance(element, dict):
            return None
        found = []
        for key in self.map_keys:
            value = element.get(key, self.items.child(key).raw.get("default"))
            if value is None:
                return None
            found.append(value)
        return tuple(found)


ANY = Schema({"x-kubernetes-preserve-unknown-fields": True}, Types({}))
"""Undeclared content of a custom resource: objects are merged by field, lists replaced."""
