"""OpenAPI schemas of Kubernetes kinds, and a decoder that brings built-in objects into the form that a Go server stores.

A `Schema` wraps one OpenAPI node of a built-in kind or a CRD. Its children are created on first use, because the largest CRD has
1.2 MB of schema, and one object needs little of it. A real server decodes JSON into Go structs and encodes those again. So a client
never sees an unknown field, a null or a missing required field, and quantities have canonical form (a number 8 becomes `"8"`).
"""

import base64
import binascii
import re
from collections.abc import Mapping
from decimal import ROUND_CEILING, Decimal
from enum import Enum
from typing import Any

_PREFIX = "#/definitions/"
Raw = Mapping[str, Any]


class ListType(Enum):
    """The way in which server-side apply merges a list (`x-kubernetes-list-type`)."""

    ATOMIC = "atomic"
    SET = "set"
    MAP = "map"


class NamedTypes:
    """The named types of an OpenAPI document, to which `$ref` refers. Each gets one Schema, on first use."""

    def __init__(self, definitions: Raw) -> None:
        self._definitions = definitions
        self._made: dict[str, Schema] = {}

    def __getitem__(self, name: str) -> "Schema":
        if name not in self._made:
            self._made[name] = Schema(self._definitions[name], self)
        return self._made[name]

    def schema(self, raw: Raw) -> "Schema":
        """Return the Schema of an OpenAPI node with its `$ref` resolved; keys beside `$ref` override those of the named type."""
        name = raw.get("$ref")
        if not isinstance(name, str):
            return Schema(raw, self)
        name = name.removeprefix(_PREFIX)
        if len(raw) == 1:
            return self[name]
        return Schema({**self[name].raw, **{key: value for key, value in raw.items() if key != "$ref"}}, self)


class Schema:
    """One node of an OpenAPI schema with its Kubernetes extensions: the type of an object, of a field, or of a list's elements."""

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
        """Return the schema of the field `name`, or None if the node does not declare it."""
        schema = self._made.get(name)
        if schema is None and name in self.properties:
            schema = self._made[name] = self._types.schema(self.properties[name])
        return schema

    @property
    def rest(self) -> "Schema | None":
        """Return the schema of the values of undeclared keys (`additionalProperties`), or None if there is none."""
        if self._rest is None:
            raw = self.raw.get("additionalProperties")
            self._rest = self._types.schema(raw) if isinstance(raw, Mapping) else ANY if raw else None
        return self._rest

    @property
    def items(self) -> "Schema":
        """Return the schema of a list's elements; `ANY` if the node does not declare one."""
        if self._items is None:
            raw = self.raw.get("items")
            self._items = self._types.schema(raw) if isinstance(raw, Mapping) else ANY
        return self._items

    def branches(self, junctor: str) -> "tuple[Schema, ...]":
        """Return the schemas listed under `junctor` (`allOf`, `anyOf`, `oneOf` or `not`); an empty tuple if there are none."""
        raw = self.raw.get(junctor)
        if not raw:
            return ()
        return tuple(self._types.schema(node) for node in (raw if isinstance(raw, list) else [raw]))

    def child(self, name: str) -> "Schema":
        """Return the schema of the field `name`: the declared one, else that of undeclared keys, else `ANY`."""
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
        """Return True if the node declares neither fields, nor values of undeclared keys, nor that unknown fields are preserved."""
        return not self.properties and "additionalProperties" not in self.raw and not self.preserve

    @property
    def atomic_map(self) -> bool:
        """Return True if apply treats the object as one value with one owner.

        A node is so if its map type says so, or if it is an object of a built-in type that declares no fields (RawExtension).
        """
        return self.raw.get("x-kubernetes-map-type") == "atomic" or (self.open and self is not ANY)

    @property
    def list_type(self) -> ListType:
        """Return how server-side apply merges this list.

        Old built-in types have no `x-kubernetes-list-type`, so their patch strategy decides (kube-openapi `schemaconv`).
        """
        named = self.raw.get("x-kubernetes-list-type")
        if named:
            return ListType(named)
        if "merge" in self.patch_strategy:
            return ListType.MAP if self.merge_key else ListType.SET
        return ListType.ATOMIC

    @property
    def map_keys(self) -> tuple[str, ...]:
        """Return the names of the fields that together identify an element of a list of type map; empty for any other list."""
        keys = self.raw.get("x-kubernetes-list-map-keys")
        return tuple(keys) if keys else (self.merge_key,) if self.merge_key else ()

    @property
    def merge_key(self) -> str:
        """Return the field by which a strategic merge patch matches elements of this list; empty if there is none."""
        return str(self.raw.get("x-kubernetes-patch-merge-key", ""))

    @property
    def patch_strategy(self) -> frozenset[str]:
        """Return how a strategic merge patch treats this node: any of `merge` and `retainKeys`; empty means replace."""
        return frozenset(filter(None, str(self.raw.get("x-kubernetes-patch-strategy", "")).split(",")))

    def element_key(self, element: Any) -> tuple[Any, ...] | None:
        """Return the values of `map_keys` in a list element, with schema defaults; None if a key is missing or it is no object."""
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
"""The schema of content that a type does not declare: apply merges its objects field by field and replaces its lists."""


_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
_GO_NAMES = {"string": "string", "integer": "int", "number": "float64", "boolean": "bool", "object": "map", "array": "slice"}
_ZERO: dict[str, Any] = {"string": "", "integer": 0, "number": 0, "boolean": False}
_BOUNDS = {"int32": 2**31, "int64": 2**63}
_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d+))")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_PLAIN = re.compile(r"0|[1-9]\d{0,2}")


def canonical_quantity(value: str | int | float) -> str:
    """Return a quantity in canonical form: `"1000m"` → `"1"`, `0.5` → `"500m"`, `"2048Mi"` → `"2Gi"`. Raises ValueError."""
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    form = _FORM.fullmatch(text)
    if not form:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, binary, suffix, exponent = form.groups()
    if binary:
        return _binary(Decimal(number) * 1024 ** _BINARY.index(binary))
    if exponent is not None:
        return _decimal(Decimal(number).scaleb(int(exponent)), scientific=True)
    return _decimal(Decimal(number).scaleb(_EXPONENTS[suffix]), scientific=False)


def _binary(amount: Decimal) -> str:
    if amount != amount.to_integral_value() or abs(amount) < 1024:
        return _decimal(amount, scientific=False)
    whole, power = int(amount), 0
    while whole and whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


def _decimal(amount: Decimal, *, scientific: bool) -> str:
    whole = int(amount.scaleb(9).to_integral_value(ROUND_CEILING))
    exponent = -9
    while whole and whole % 1000 == 0 and exponent < 18:
        whole, exponent = whole // 1000, exponent + 3
    if not whole:
        return "0"
    if scientific:
        return f"{whole}e{exponent}" if exponent else str(whole)
    return f"{whole}{_DECIMAL[exponent]}"


class WrongTypeError(Exception):
    """Raised for a JSON value that cannot be decoded into its Go type; the text is the message of Go's decoder."""


def json_type(value: Any) -> str:
    """Return the type name of a JSON value as error messages show it: null, bool, number, string, object or array."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, dict) else "array"


_NOT_STORED = object()


class BuiltinDecoder:
    """A decoder for one request body; use a new one for each.

    After `decode`, `unknown` holds the dotted paths of dropped fields and `missing` those of required lists that were absent.
    """

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self.missing: list[str] = []

    def decode(self, value: Any, schema: Schema, path: str, stored: Any = _NOT_STORED) -> Any:
        """Return `value` in the form in which a Go server stores it. Raises WrongTypeError for a wrong JSON type or format.

        `path` is the dotted path of the value, for messages; empty at the top. `stored` is the value that was decoded there before:
        a part of `value` that is the same Python object needs no second look.
        """
        if value is stored:
            return value
        if schema.type == "object":
            return self._object(value, schema, path, stored if isinstance(stored, dict) else {})
        if schema.type == "array":
            return self._list(value, schema, path)
        return _scalar(value, schema, path) if schema.type else value

    def _list(self, value: Any, schema: Schema, path: str) -> list[Any]:
        if not isinstance(value, list):
            raise _mismatch(value, schema, path)
        items = schema.items
        return [self.decode(element, items, f"{path}[{index}]") for index, element in enumerate(value)]

    def _object(self, value: Any, schema: Schema, path: str, stored: dict[str, Any]) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _mismatch(value, schema, path)
        if schema.properties:
            return self._struct(value, schema, path, stored)
        rest = schema.rest
        if rest is None:
            return value
        zero = _ZERO.get(rest.type)
        return {
            key: zero if child is None else self.decode(child, rest, f"{path}.{key}", stored.get(key, _NOT_STORED))
            for key, child in value.items()
        }

    def _struct(self, value: dict[str, Any], schema: Schema, path: str, stored: dict[str, Any]) -> dict[str, Any]:
        dot = f"{path}." if path else ""
        decoded: dict[str, Any] = {}
        for key, child in value.items():
            field = schema.field(key)
            if field is None:
                self.unknown.append(dot + key)
            elif child is not None:
                decoded[key] = self.decode(child, field, dot + key, stored.get(key, _NOT_STORED))
        for key in schema.required:
            if key not in decoded:
                self._fill(decoded, schema, key, dot + key)
        return decoded

    def _fill(self, decoded: dict[str, Any], schema: Schema, key: str, path: str) -> None:
        field = schema.child(key)
        if field.type == "object":
            decoded[key] = self.decode({}, field, path)
        elif field.type == "array":
            self.missing.append(path)
        elif field.int_or_string:
            decoded[key] = 0
        elif field.format == "quantity":
            decoded[key] = "0"
        elif field.format != "date-time" and field.type:
            decoded[key] = _ZERO[field.type]


def _scalar(value: Any, schema: Schema, path: str) -> Any:
    kind = schema.type
    if kind == "string":
        return _string(value, schema, path)
    if kind == "boolean":
        fits = isinstance(value, bool)
    elif kind == "integer":
        fits = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _BOUNDS.get(schema.format, 2**63)
    else:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    if not fits:
        raise _mismatch(value, schema, path)
    return value


def _string(value: Any, schema: Schema, path: str) -> Any:
    form = schema.format
    if form == "quantity" and isinstance(value, str | int | float) and not isinstance(value, bool):
        try:
            return canonical_quantity(value)
        except ValueError as error:
            raise WrongTypeError(str(error)) from error
    if form == "int-or-string" and isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise _mismatch(value, schema, path)
    if form == "date-time" and not _TIME.fullmatch(value):
        raise WrongTypeError(f'parsing time "{value}" as "2006-01-02T15:04:05Z07:00": cannot parse it')
    if form == "byte":
        try:
            base64.b64decode(value, validate=True)
        except binascii.Error as error:
            raise WrongTypeError("illegal base64 data") from error
    return value


def _mismatch(value: Any, schema: Schema, path: str) -> WrongTypeError:
    go_type = "int32" if schema.format == "int32" else _GO_NAMES[schema.type]
    return WrongTypeError(f"json: cannot unmarshal {json_type(value)} into Go struct field .{path} of type {go_type}")
