"""Translate pydantic's validation errors into spec errors with path, value, problem, and a fix that can be typed."""

from __future__ import annotations

import difflib
import functools
import re
import types
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from workflows.spec.errors import SpecError, format_value
from workflows.spec.fields import SecretRef
from workflows.spec.parsing import secrecy
from workflows.spec.parsing.document import YamlDocument, join

_GROUPS = frozenset({"mapping_type", "dict_type", "model_type", "model_attributes_type"})

_LIMITS = {
    "greater_than": "more than {gt} is expected here",
    "greater_than_equal": "at least {ge} is expected here",
    "less_than": "less than {lt} is expected here",
    "less_than_equal": "at most {le} is expected here",
    "too_short": "at least {min_length} is expected here",
    "too_long": "at most {max_length} are expected here",
    "string_too_short": "at least {min_length} characters are expected here",
    "string_too_long": "at most {max_length} characters are expected here",
}

_WANTED = {
    "string_type": "text is expected here",
    "int_type": "a whole number is expected here",
    "float_type": "a number is expected here",
    "bool_type": "true or false is expected here",
    "tuple_type": "a list is expected here",
}


def translate(model: type[BaseModel], details: list[ErrorDetails], document: YamlDocument, base: str = "") -> list[SpecError]:
    """Return spec errors for pydantic's errors, in their order, each with the line of its key.

    Errors that only follow from another one are left out.
    """
    unknown = [detail["loc"] for detail in details if detail["type"] == "extra_forbidden"]
    misspelt = {(*place[:-1], similar_key(model, place)) for place in unknown}
    kept = [detail for detail in details if not _follows(detail, details, misspelt)]
    return [_one(model, detail, document, base) for detail in kept]


def _follows(detail: ErrorDetails, details: list[ErrorDetails], misspelt: Collection[tuple[int | str, ...]]) -> bool:
    """Return True if an error only follows from another one in `details`.

    A list is "too short" if its items were refused; a key is missing if it was misspelt.
    """
    place = detail["loc"]
    if detail["type"] == "missing":
        return place in misspelt
    return detail["type"] == "too_short" and any(
        other["loc"][: len(place)] == place and len(other["loc"]) > len(place) for other in details
    )


def similar_key(model: type[BaseModel], location: Sequence[int | str]) -> str:
    """Return the known key that the last word of a location resembles, because it may be misspelt; empty if none is similar."""
    owner = _model_at(model, location[:-1])
    return _nearest(owner, str(location[-1])) if owner is not None else ""


@functools.lru_cache(1 << 14)
def _nearest(owner: type[BaseModel], key: str) -> str:
    near = difflib.get_close_matches(key, _keys(owner), n=1, cutoff=0.6)
    return near[0] if near else ""


def _one(model: type[BaseModel], detail: ErrorDetails, document: YamlDocument, base: str) -> SpecError:
    location = tuple(part for part in detail["loc"] if part != "[key]")
    path = base
    for part in location:
        path = join(path, part)
    if detail["type"] == "extra_forbidden":
        return _unknown_key(model, location, path, document)
    field = _field(model, location)
    problem, fix = _sentences(model, detail, field, location, document.written.get(path))
    value = "" if detail["type"] == "missing" else _safe(model, detail.get("input"), location, document.written.get(path))
    return SpecError(path, problem, fix, value=value, line=line_of(path, document))


def line_of(path: str, document: YamlDocument) -> int:
    """Return the line of the key at a path, or of its nearest parent that the file has; 0 if there is none."""
    while path:
        if path in document.lines:
            return document.lines[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return 0


def _safe(model: type[BaseModel], value: object, location: Sequence[int | str], written: str | None) -> str:
    """Return the offending value for a message, redacted if it may be a secret."""
    key = str(location[-1]) if location else ""
    secret_here = _model_at(model, location) is SecretRef
    if isinstance(value, str) and (secret_here or secrecy.names_secret(key) or secrecy.form_of(value)):
        return secrecy.REDACTED
    return written or format_value(value)


def _unknown_key(model: type[BaseModel], location: Sequence[int | str], path: str, document: YamlDocument) -> SpecError:
    from workflows.spec.parsing import out_of_scope  # imported here: only a wrong key needs it

    key = str(location[-1])
    line = line_of(path, document)
    refused = out_of_scope.find(key)
    if refused is not None:
        return SpecError(path, refused.sentence, f"remove {key}", line=line)
    owner = _model_at(model, location[:-1])
    known = _keys(owner) if owner else []
    # the key may be valid below exactly one key of this section
    fits = [name for name, below in _sections(owner).items() if key in below] if owner else []
    near, place = similar_key(model, location), fits[0] if len(fits) == 1 else ""
    fix = f"put it below {place}, as in {place}: {{{key}: …}}" if place else f"known keys here: {', '.join(known)}"
    fix = f"did you mean {near}?" if near else fix
    return SpecError(path, f"{key} is not a key of this section", fix, line=line)


@functools.cache
def _sections(owner: type[BaseModel]) -> Mapping[str, Sequence[str]]:
    return {field.alias or name: _keys_below(field.annotation) for name, field in owner.model_fields.items()}


def _keys_below(annotation: Any) -> Sequence[str]:
    section = as_model(annotation)
    if section is not None:
        return _keys(section)
    maps = [part for part in _parts(annotation) if isinstance(get_origin(part), type) and issubclass(get_origin(part), Mapping)]
    return [key for part in maps if get_origin(get_args(part)[0]) is Literal for key in get_args(get_args(part)[0])]


def _sentences(
    model: type[BaseModel], detail: ErrorDetails, field: FieldInfo | None, location: Sequence[int | str], written: str | None
) -> tuple[str, str]:
    """Return the problem and the fix of a validation error as sentences."""
    kind, context = detail["type"], detail.get("ctx", {})
    if kind != "spec" and (meant := _meaning(detail, location, written)) is not None:
        return meant
    sample = _sample(field, location)
    write = f"write {sample}" if sample else "put `- ` before each entry" if kind == "tuple_type" else "see the schema"
    if kind == "spec":
        return str(context["sentence"]), str(context["fix"])
    if kind == "missing":
        return "this key is required", f"add {location[-1]}: {sample}" if sample else f"add {location[-1]}, a group of keys"
    if kind == "literal_error":
        return _literal(detail, str(context.get("expected", "")))
    if kind in _GROUPS:
        owner = _model_at(model, location)
        return "a group of keys is expected here", f"write its keys below it: {', '.join(_keys(owner))}" if owner else write
    if kind in ("string_type", "string_pattern_mismatch") and written is not None:
        return "text is expected here", f'put it in quotes: "{written}"' if _accepts(model, location, written) else write
    if kind == "string_pattern_mismatch":
        about, near = field.description if field else None, _as_name(detail.get("input"), str(context.get("pattern", "")))
        fix = f"write {near}" if near else write
        if location and isinstance(location[-1], int) and sample:
            fix = _as_entries(detail.get("input"), sample) or (fix if near else f"write it in the form of {sample}")
        return "the text does not have the expected form" + (f": {_without_default(about)}" if about else ""), fix
    if kind in _LIMITS:
        return _LIMITS[kind].format(**context), write
    return _WANTED.get(kind, detail["msg"]), write


def _without_default(description: str) -> str:
    """Return a field's description for a message: without its default, which says nothing about the form."""
    return re.sub(r"[;.] [Dd]efault\b.*", "", description, flags=re.DOTALL).rstrip(".")


def _meaning(detail: ErrorDetails, location: Sequence[int | str], written: str | None) -> tuple[str, str] | None:
    """Return problem and fix if `known_names` knows what the user means by a value; numbers count as they are written."""
    from workflows.spec.parsing import known_names  # imported here: only a wrong value needs it

    value = written if written is not None else detail.get("input")
    path = ".".join(str(part) for part in location if not isinstance(part, int))
    return known_names.meaning(path, value) if isinstance(value, str) else None


def _accepts(model: type[BaseModel], location: Sequence[int | str], text: str) -> bool:
    """Return True if the field at a location accepts a text, or if the location is an item of a list or a value of a map."""
    owner = _model_at(model, location[:-1])
    field = find_field(owner, location[-1]) if owner is not None else None
    if field is None:
        return True
    try:
        TypeAdapter(field.rebuild_annotation()).validate_python(text)
    except ValidationError:
        return False
    return True


def _as_entries(value: object, sample: str) -> str:
    """Return a fix for one list entry that holds several words; empty for a single word, or where entries may have several."""
    words = value.split() if isinstance(value, str) and not secrecy.form_of(value) and " " not in sample else []
    several = f"{', '.join(words[:3])}{', …' if len(words) > 3 else ''}"
    return f"make each word an entry of its own: {several}" if len(words) > 1 else ""


def _as_name(value: object, pattern: str) -> str:
    """Return the name to propose for a text that `pattern` refused: in lower case, with dashes or underscores.

    Empty if the pattern is not that of a name, if the text cannot be turned into one, or if it may be a secret.
    """
    if not isinstance(value, str) or not pattern.startswith("^[a-z") or secrecy.form_of(value) or re.search(r"^-|=", value):
        return ""
    made = (re.sub(r"[^a-z0-9]+", joint, value.lower()).strip("-_")[:40].strip("-_") for joint in "-_")
    return next((name for name in made if re.search(pattern, name)), "")


def _keys(model: type[BaseModel]) -> list[str]:
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _literal(detail: ErrorDetails, expected: str) -> tuple[str, str]:
    words = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    value = str(detail.get("input"))
    # another number is another product or size, no misspelling; but O is often typed for 0
    digits = re.findall(r"\d+", re.sub(r"(?<=\d)[oO]|[oO](?=\d)", "0", value))
    near = [word for word in difflib.get_close_matches(value, words, n=3, cutoff=0.6) if re.findall(r"\d+", word) == digits]
    near = [word for word in words if word.lower() == value.lower()] or near
    fix = f"write {near[0]}" if near and len(words) > 1 else f"write {words[0]}" if len(words) == 1 else "choose one of them"
    return f"not one of: {', '.join(words)}", fix


def _sample(field: FieldInfo | None, location: Sequence[int | str]) -> str:
    """Return a field's first example as text, or one item of it if the location is an item; empty if the field has none."""
    if field is None or not field.examples:
        return ""
    sample = field.examples[0]
    if location and isinstance(location[-1], int) and isinstance(sample, list):
        sample = sample[0]
    if isinstance(sample, dict):
        return "{" + ", ".join(f"{key}: {_scalar(value)}" for key, value in sample.items()) + "}"
    if isinstance(sample, list):
        return "[" + ", ".join(_scalar(value) for value in sample) + "]"
    return _scalar(sample)


def _scalar(value: object) -> str:
    return "{…}" if isinstance(value, dict) else format_value(value).strip('"')


def _field(model: type[BaseModel], location: Sequence[int | str]) -> FieldInfo | None:
    """Return the field at a location, or the nearest one above it; None if there is none."""
    for end in range(len(location), 0, -1):
        owner = _model_at(model, location[: end - 1])
        if owner is not None:
            return find_field(owner, location[end - 1])
    return None


def find_field(owner: type[BaseModel], key: object) -> FieldInfo | None:
    """Return the field of a model by its name or its alias; None if there is none."""
    return next((field for name, field in owner.model_fields.items() if key in (name, field.alias)), None)


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the model whose keys are at a location, or None. Field names step into a model; indices and map keys step over."""
    here: Any = model
    for key in location:
        owner = as_model(here)
        if owner is not None:
            field = find_field(owner, key)
            here = field.annotation if field is not None else None
        else:
            here = item(here)
    return as_model(here)


def as_model(annotation: Any) -> type[BaseModel] | None:
    """Return the model in a field's type annotation; None if it has none."""
    return next((part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def item(annotation: Any) -> Any:
    """Return the type of a list's items or a map's values, given its annotation; None for other annotations."""
    for part in _parts(annotation):
        origin = get_origin(part)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return get_args(part)[1]
        if origin is tuple:
            return get_args(part)[0]
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation consists of, looking into Annotated and unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation


MOST_KNOWN = 50
"""Limit of known errors: with more of them the rules are not run, since their errors would not be shown."""
_Place = tuple[int | str, ...]


def findings(model: type[BaseModel], data: object, known: Collection[ErrorDetails]) -> list[ErrorDetails]:
    """Return the errors of section rules that did not run because of the invalid fields in `known`, in pydantic's form.

    A rule sees the valid fields. An invalid field counts as present; a rule that needs its value is skipped.
    """
    return list(_below(model, data, (), {detail["loc"] for detail in known})) if len(known) <= MOST_KNOWN else []


def _below(annotation: Any, data: object, place: _Place, broken: Collection[_Place]) -> Iterator[ErrorDetails]:
    if not any(len(loc) > len(place) and loc[: len(place)] == place for loc in broken):
        return  # sound, hence its rules were asked
    model = as_model(annotation)
    if isinstance(data, Mapping):
        for key, value in data.items():
            field = find_field(model, key) if model else None
            inner = field.annotation if field else None if model else item(annotation)
            yield from _below(inner, value, (*place, key), broken)
        if model is not None:
            yield from _asked(model, data, place)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _below(item(annotation), value, (*place, index), broken)


def _asked(model: type[BaseModel], data: Mapping[str, object], place: _Place) -> Iterator[ErrorDetails]:
    """Run the rules of one section on its valid fields and yield their errors."""
    section = _taken(model, data)
    for rule in model.__pydantic_decorators__.model_validators.values():
        if rule.info.mode != "after":
            continue
        try:
            rule.func(section)
        except PydanticCustomError as error:
            context = error.context or {}
            yield {"type": "spec", "loc": place, "msg": error.message(), "input": dict(data), "ctx": dict(context)}
        except (AttributeError, TypeError, ValueError, KeyError, IndexError):
            continue  # what it asks for is broken, and told by itself


class _Broken:
    """Placeholder of an invalid field. Any use of its value raises AttributeError, which skips the rule."""

    def _refuse(self, *_: object) -> Any:
        raise AttributeError

    __getattr__ = __bool__ = __eq__ = __hash__ = __str__ = __format__ = _refuse


BROKEN: Any = _Broken()
"""Stand-in for an invalid field or section: a rule that uses it raises AttributeError, and is skipped."""


def _taken(model: type[BaseModel], data: Mapping[str, object]) -> Any:
    """Return a section built from its valid fields, without validation; a required field that is missing stays missing."""
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = find_field(model, key) or find_field(model, similar_key(model, (key,)))
        if field is not None:
            name = next(name for name, known in model.model_fields.items() if known is field)
            values[name] = _sound(field.rebuild_annotation(), value)
    return model.model_construct(**values)


def _sound(annotation: Any, value: object) -> Any:
    """Return a value as its field parses it; lists and maps keep their valid items only, and sections their valid fields."""
    model, inner = as_model(annotation), item(annotation)
    if inner is not None and isinstance(value, list):
        return tuple(part for entry in value if (part := _sound(inner, entry)) is not BROKEN)
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        pass
    if model is not None and isinstance(value, Mapping):
        return _taken(model, value)
    if inner is not None and isinstance(value, Mapping):
        return {key: part for key, entry in value.items() if (part := _sound(inner, entry)) is not BROKEN}
    return BROKEN
