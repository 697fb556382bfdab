"""Label and field selectors: text to a predicate over index entries (apimachinery `labels` and `fields`)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.entry import Entry
from workflows.rehearsal.apiserver.resources import Resource

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
    """One term of a label selector. `op` is one of `in`, `notin`, `exists`, `!`, `>`, `<`."""

    key: str
    op: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels satisfy the term."""
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
    """The terms of a label selector.

    Raises:
        ApiError: 400, not a selector.
    """
    if not text.strip():
        return ()
    return tuple(_requirement(term.strip()) for term in _COMMA_OUTSIDE.split(text))


def _requirement(term: str) -> Requirement:
    if found := _SET.fullmatch(term):
        return _checked(term, found[1], found[2], frozenset(value.strip() for value in found[3].split(",")))
    if found := _COMPARED.fullmatch(term):
        op = {"=": "in", "==": "in", "!=": "notin"}.get(found[2], found[2])
        return _checked(term, found[1], op, frozenset((found[3],)))
    if found := _EXISTS.fullmatch(term):
        return _checked(term, found[2], "!" if found[1] else "exists", frozenset())
    raise errors.bad_request(f"unable to parse requirement: {term!r}")


def _checked(term: str, key: str, op: str, values: frozenset[str]) -> Requirement:
    good = _KEY.fullmatch(key) and all(_VALUE.fullmatch(value) for value in values)
    if not good or (op in "<>" and not all(value.lstrip("-").isdigit() for value in values)):
        raise errors.bad_request(f"unable to parse requirement: {term!r}")
    return Requirement(key, op, values)


@dataclass(frozen=True)
class FieldTerm:
    """One term of a field selector. `index` is the place in `Entry.fields`; -2 is the name and -1 the namespace."""

    index: int
    value: str
    equal: bool

    def matches(self, entry: Entry) -> bool:
        """Whether the entry satisfies the term."""
        held = entry.name if self.index == -2 else entry.namespace if self.index == -1 else entry.fields[self.index]
        return (held == self.value) == self.equal


def parse_fields(text: str, resource: Resource) -> tuple[FieldTerm, ...]:
    """The terms of a field selector on this resource.

    Raises:
        ApiError: 400, not a selector, or a field that the resource does not offer.
    """
    names = [field.name for field in resource.fields]
    return tuple(_field_term(term, names, resource) for term in re.split(r"(?<!\\),", text) if term)


def _field_term(term: str, names: Sequence[str], resource: Resource) -> FieldTerm:
    found = _FIELD.fullmatch(term)
    if not found:
        raise errors.bad_request(f"invalid field selector: {term!r}; can't understand it")
    name, op, value = found[1], found[2], re.sub(r"\\(.)", r"\1", found[3])
    if name in _ALWAYS:
        return FieldTerm(_ALWAYS.index(name) - 2, value, op != "!=")
    if name not in names:
        raise errors.bad_request(
            f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
            + "".join(_quoted(names))
            + f" on {resource.plural}"
        )
    return FieldTerm(names.index(name), value, op != "!=")


def _quoted(names: Sequence[str]) -> Iterator[str]:
    return (f', "{name}"' for name in names)


@dataclass(frozen=True)
class Selection:
    """A namespace (empty: all), label terms and field terms together."""

    namespace: str = ""
    labels: tuple[Requirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def narrows(self) -> bool:
        """Whether labels or fields are asked for."""
        return bool(self.labels or self.fields)

    def matches(self, entry: Entry) -> bool:
        """Whether the entry is selected."""
        if self.namespace and entry.namespace != self.namespace:
            return False
        return all(term.matches(entry.labels) for term in self.labels) and all(term.matches(entry) for term in self.fields)


def select(resource: Resource, namespace: str, labels: str, fields: str) -> Selection:
    """The selection that a request's parameters describe.

    Raises:
        ApiError: 400, a selector cannot be understood.
    """
    return Selection(namespace, parse_labels(labels), parse_fields(fields, resource))
