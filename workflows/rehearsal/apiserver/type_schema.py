"""Types of objects, as decoding, pruning, validation, patches and apply all need them.

A `Schema` wraps one OpenAPI node of a built-in kind or a CRD. Its children are created on first use: the largest CRD has 1.2 MB of
schema, of which one object needs little.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

_PREFIX = "#/definitions/"
Raw = Mapping[str, Any]


class ListType(Enum):
    """The merge behaviour of a list (`x-kubernetes-list-type`)."""

    ATOMIC = "atomic"
    SET = "set"
    MAP = "map"


class NamedTypes:
    """The named types that `$ref` refers to; each is wrapped once."""

    def __init__(self, definitions: Raw) -> None:
        self._definitions = definitions
        self._made: dict[str, Schema] = {}

    def __getitem__(self, name: str) -> "Schema":
        if name not in self._made:
            self._made[name] = Schema(self._definitions[name], self)
        return self._made[name]

    def schema(self, raw: Raw) -> "Schema":
        """Return the schema of a node with its `$ref` resolved; marks beside the `$ref` take precedence."""
        name = raw.get("$ref")
        if not isinstance(name, str):
            return Schema(raw, self)
        name = name.removeprefix(_PREFIX)
        if len(raw) == 1:
            return self[name]
        return Schema({**self[name].raw, **{key: value for key, value in raw.items() if key != "$ref"}}, self)


class Schema:
    """A node of an OpenAPI schema with its Kubernetes extensions."""

    __slots__ = ("_items", "_made", "_rest", "_types", "format", "nullable", "preserve", "properties", "raw", "required", "type")

    def __init__(self, raw: Raw, types: NamedTypes) -> None:
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
        """Return the schema of a declared field, or None."""
        schema = self._made.get(name)
        if schema is None and name in self.properties:
            schema = self._made[name] = self._types.schema(self.properties[name])
        return schema

    @property
    def rest(self) -> "Schema | None":
        """Return the schema of a map's values (`additionalProperties`), or None."""
        if self._rest is None:
            raw = self.raw.get("additionalProperties")
            self._rest = self._types.schema(raw) if isinstance(raw, Mapping) else ANY if raw else None
        return self._rest

    @property
    def items(self) -> "Schema":
        """Return the schema of a list's elements."""
        if self._items is None:
            raw = self.raw.get("items")
            self._items = self._types.schema(raw) if isinstance(raw, Mapping) else ANY
        return self._items

    def branches(self, junctor: str) -> "tuple[Schema, ...]":
        """Return the schemas below `allOf`, `anyOf`, `oneOf` or `not`."""
        raw = self.raw.get(junctor)
        if not raw:
            return ()
        return tuple(self._types.schema(node) for node in (raw if isinstance(raw, list) else [raw]))

    def child(self, name: str) -> "Schema":
        """Return the schema of a field, declared or not."""
        return self.field(name) or self.rest or ANY

    @property
    def int_or_string(self) -> bool:
        """Return True if both an integer and a string are valid."""
        return self.format == "int-or-string" or bool(self.raw.get("x-kubernetes-int-or-string"))

    @property
    def embedded(self) -> bool:
        """Return True if the node is a whole Kubernetes object with apiVersion, kind and metadata."""
        return bool(self.raw.get("x-kubernetes-embedded-resource"))

    @property
    def open(self) -> bool:
        """Return True if the node is an object without any declared field, whose content is kept."""
        return not self.properties and "additionalProperties" not in self.raw and not self.preserve

    @property
    def atomic_map(self) -> bool:
        """Return True if the object has one owner as a whole, as undeclared content of built-in types (RawExtension) has."""
        return self.raw.get("x-kubernetes-map-type") == "atomic" or (self.open and self is not ANY)

    @property
    def list_type(self) -> ListType:
        """Return how apply merges this list. Old built-in types only carry the patch strategy (kube-openapi `schemaconv`)."""
        named = self.raw.get("x-kubernetes-list-type")
        if named:
            return ListType(named)
        if "merge" in self.patch_strategy:
            return ListType.MAP if self.merge_key else ListType.SET
        return ListType.ATOMIC

    @property
    def map_keys(self) -> tuple[str, ...]:
        """Return the fields that identify an element of a list of type map."""
        keys = self.raw.get("x-kubernetes-list-map-keys")
        return tuple(keys) if keys else (self.merge_key,) if self.merge_key else ()

    @property
    def merge_key(self) -> str:
        """Return the key by which a strategic merge patch merges this list; empty if it has none."""
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    @property
    def patch_strategy(self) -> frozenset[str]:
        """Return the strategies of a strategic merge patch: `merge`, `retainKeys`."""
        return frozenset(filter(None, str(self.raw.get("x-kubernetes-patch-strategy", "")).split(",")))

    def element_key(self, element: Any) -> tuple[Any, ...] | None:
        """Return the identity of an element of a list of type map, with schema defaults; None if a key is missing."""
        if not isinstance(element, dict):
            return None
        key_values = []
        for key in self.map_keys:
            value = element.get(key, self.items.child(key).raw.get("default"))
            if value is None:
                return None
            key_values.append(value)
        return tuple(key_values)


ANY = Schema({"x-kubernetes-preserve-unknown-fields": True}, NamedTypes({}))
"""The type of undeclared content in a custom resource: objects are merged by field, lists replaced."""
