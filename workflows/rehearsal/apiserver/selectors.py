"""Label and field selectors, parsed into predicates over stored objects (k8s.io/apimachinery `labels` and `fields`)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import StoredObject

_PREFIX = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?"
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(_PREFIX + _NAME)
_VALUE = re.compile(rf"(?:{_NAME})?")
_SET = re.compile(r"(\S+)\s+(in|notin)\s*\(([^()]*)\)")
_COMPARED = re.compile(r"([^\s=!<>]+)\s*(==|=|!=|>|<)\s*([^\s=!<>]*)")
_EXISTS = re.compile(r"(!?)\s*([^\s=!<>()]+)")
_COMMA_OUTSIDE = re.compile(r",(?![^(]*\))")
_FIELD = re.compile(r"((?:\\.|[^\\=!])*)(==|=|!=)((?:\\.|[^\\])*)")
_ALWAYS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True)
class Requirement:
    """One term of a label selector, such as `app in (a,b)`. `op` is one of `in`, `notin`, `exists`, `!`, `>`, `<`."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if an object with these labels satisfies the term."""
        present = self.key in labels
        if self.op == "exists":
            return present
        if self.op == "!":
            return not present
        if self.op == "in":
            return present and labels[self.key] in self.values
        if self.op == "notin":
            return not present or labels[self.key] not in self.values
        return present and self._compares(labels[self.key])

    def _compares(self, value: str) -> bool:
        (bound,) = self.values
        try:
            return int(value) > int(bound) if self.op == ">" else int(value) < int(bound)
        except ValueError:
            return False


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Return the terms of a label selector; empty for an empty one. Raises StatusError (400) if it cannot be parsed."""
    if not text.strip():
        return ()
    return tuple(_requirement(term.strip()) for term in _COMMA_OUTSIDE.split(text))


def _requirement(term: str) -> Requirement:
    if match := _SET.fullmatch(term):
        return _checked(term, match[1], match[2], frozenset(value.strip() for value in match[3].split(",")))
    if match := _COMPARED.fullmatch(term):
        op = {"=": "in", "==": "in", "!=": "notin"}.get(match[2], match[2])
        return _checked(term, match[1], op, frozenset((match[3],)))
    if match := _EXISTS.fullmatch(term):
        return _checked(term, match[2], "!" if match[1] else "exists", frozenset())
    raise errors.bad_request(f"unable to parse requirement: {term!r}")


def _checked(term: str, key: str, op: str, values: frozenset[str]) -> Requirement:
    valid = _KEY.fullmatch(key) and all(_VALUE.fullmatch(value) for value in values)
    if not valid or (op in "<>" and not all(value.lstrip("-").isdigit() for value in values)):
        raise errors.bad_request(f"unable to parse requirement: {term!r}")
    return Requirement(key, op, values)


@dataclass(frozen=True)
class FieldTerm:
    """One term of a field selector: a field that must equal `value`, or differ from it if `equal` is false.

    `index` is the field's position in `StoredObject.fields`; -2 is the name and -1 the namespace.
    """

    index: int
    value: str
    equal: bool

    def matches(self, entry: StoredObject) -> bool:
        """Return True if the object satisfies the term."""
        present = entry.name if self.index == -2 else entry.namespace if self.index == -1 else entry.fields[self.index]
        return (present == self.value) == self.equal


def parse_fields(text: str, resource: ServedResource) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector for a resource; empty for an empty one.

    Raises StatusError (400) if it cannot be parsed or names a field that the resource does not offer.
    """
    names = [field.name for field in resource.fields]
    return tuple(_field_term(term, names, resource) for term in re.split(r"(?<!\\),", text) if term)


def _field_term(term: str, names: Sequence[str], resource: ServedResource) -> FieldTerm:
    match = _FIELD.fullmatch(term)
    if not match:
        raise errors.bad_request(f"invalid field selector: {term!r}; can't understand it")
    name, op, value = match[1], match[2], re.sub(r"\\(.)", r"\1", match[3])
    if name in _ALWAYS:
        return FieldTerm(_ALWAYS.index(name) - 2, value, op != "!=")
    if name not in names:
        known = ", ".join(f'"{field}"' for field in (*_ALWAYS, *names))
        raise errors.bad_request(f'"{name}" is not a known field selector: only {known} on {resource.plural}')
    return FieldTerm(names.index(name), value, op != "!=")


@dataclass(frozen=True)
class Selection:
    """The objects that a LIST, WATCH or delete of a collection concerns: those of a namespace (empty: all) that match all terms."""

    namespace: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def narrows(self) -> bool:
        """Return True if there are label or field terms, so that objects of the namespace may be left out."""
        return bool(self.labels or self.fields)

    def matches(self, entry: StoredObject) -> bool:
        """Return True if a stored object is in the namespace and matches all terms."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        return all(term.matches(entry.labels) for term in self.labels) and all(term.matches(entry) for term in self.fields)


def select(resource: ServedResource, namespace: str, labels: str, fields: str) -> Selection:
    """Return the Selection for a namespace (empty: all), a label selector and a field selector, as texts.

    Raises StatusError (400) for a selector that cannot be parsed.
    """
    return Selection(namespace, parse_labels(labels), parse_fields(fields, resource))
