"""pydantic's findings → spec errors in our words: path, value, problem and a fix that can be typed."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from workflows.spec import scope, secrecy
from workflows.spec.document import Document, join
from workflows.spec.errors import SpecError, shown
from workflows.spec.fields import SecretRef

_GROUPS = frozenset({"mapping_type", "dict_type", "model_type", "model_attributes_type"})

_LIMITS = {
    "greater_than": "more than {gt} is wanted here",
    "greater_than_equal": "at least {ge} is wanted here",
    "less_than": "less than {lt} is wanted here",
    "less_than_equal": "at most {le} is wanted here",
    "too_short": "at least {min_length} is wanted here",
    "too_long": "at most {max_length} are wanted here",
    "string_too_short": "at least {min_length} characters are wanted here",
    "string_too_long": "at most {max_length} characters are wanted here",
}

_WANTED = {
    "string_type": "text is wanted here",
    "int_type": "a whole number is wanted here",
    "float_type": "a number is wanted here",
    "bool_type": "true or false is wanted here",
    "tuple_type": "a list is wanted here",
}


def translate(model: type[BaseModel], error: ValidationError, document: Document, base: str = "") -> list[SpecError]:
    """Return one spec error for each finding, in pydantic's order, with the line of its key."""
    details = error.errors(include_url=False, include_context=True)
    kept = [detail for detail in details if not _follows(detail, details)]
    return [_one(model, detail, document, base) for detail in kept]


def _follows(detail: ErrorDetails, details: list[ErrorDetails]) -> bool:
    """Tell whether a finding only follows from another: a list is "too short" because its items were refused."""
    place = detail["loc"]
    return detail["type"] == "too_short" and any(
        other["loc"][: len(place)] == place and len(other["loc"]) > len(place) for other in details
    )


def _one(model: type[BaseModel], detail: ErrorDetails, document: Document, base: str) -> SpecError:
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


def line_of(path: str, document: Document) -> int:
    """Return the line of a key, or of its nearest parent that stands in the file."""
    while path:
        if path in document.lines:
            return document.lines[path]
        cut = max(path.rfind("."), path.rfind("["))
        path = path[:cut] if cut > 0 else ""
    return 0


def _safe(model: type[BaseModel], value: object, location: Sequence[int | str], written: str | None) -> str:
    """Return the offending value for a message, unless it may be a secret."""
    key = str(location[-1]) if location else ""
    secret_here = _model_at(model, location) is SecretRef
    if isinstance(value, str) and (secret_here or secrecy.names_secret(key) or secrecy.form_of(value)):
        return secrecy.REDACTED
    return written or shown(value)


def _unknown_key(model: type[BaseModel], location: Sequence[int | str], path: str, document: Document) -> SpecError:
    key = str(location[-1])
    line = line_of(path, document)
    refused = scope.find(key)
    if refused is not None:
        return SpecError(path, refused.sentence, f"remove {key}", line=line)
    owner = _model_at(model, location[:-1])
    known = _keys(owner) if owner else []
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.6)
    fix = f"did you mean {near[0]}?" if near else f"known keys here: {', '.join(known)}"
    return SpecError(path, f"{key} is no key of this section", fix, line=line)


def _sentences(
    model: type[BaseModel], detail: ErrorDetails, field: FieldInfo | None, location: Sequence[int | str], written: str | None
) -> tuple[str, str]:
    """Return problem and fix."""
    kind, context = detail["type"], detail.get("ctx", {})
    sample = _sample(field, location)
    write = f"write {sample}" if sample else "see the schema"
    if kind == "spec":
        return str(context["sentence"]), str(context["fix"])
    if kind == "missing":
        return "this key is required", f"add {location[-1]}: {sample}" if sample else f"add {location[-1]}, a group of keys"
    if kind == "literal_error":
        return _literal(detail, str(context.get("expected", "")))
    if kind in _GROUPS:
        owner = _model_at(model, location)
        return "a group of keys is wanted here", f"write its keys below it: {', '.join(_keys(owner))}" if owner else write
    if kind in ("string_type", "string_pattern_mismatch") and written is not None:
        return "text is wanted here", f'put it in quotes: "{written}"'
    if kind == "string_pattern_mismatch":
        about = field.description if field else None
        return "the text has not the form wanted here" + (f": {about}" if about else ""), write
    if kind in _LIMITS:
        return _LIMITS[kind].format(**context), write
    return _WANTED.get(kind, detail["msg"]), write


def _keys(model: type[BaseModel]) -> list[str]:
    return sorted(field.alias or name for name, field in model.model_fields.items())


def _literal(detail: ErrorDetails, expected: str) -> tuple[str, str]:
    words = [word.strip("' ") for word in expected.replace(" or ", ",").split(",")]
    near = difflib.get_close_matches(str(detail.get("input")), words, n=1, cutoff=0.6)
    fix = f"write {near[0]}" if near and len(words) > 1 else f"write {words[0]}" if len(words) == 1 else "choose one of them"
    return f"not one of: {', '.join(words)}", fix


def _sample(field: FieldInfo | None, location: Sequence[int | str]) -> str:
    """Return the field's first example, or an item of it where the location is an item."""
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
    return "{…}" if isinstance(value, dict) else shown(value).strip('"')


def _field(model: type[BaseModel], location: Sequence[int | str]) -> FieldInfo | None:
    """Return the field that a location ends in or lies under."""
    for end in range(len(location), 0, -1):
        owner = _model_at(model, location[: end - 1])
        if owner is not None:
            return _named(owner, location[end - 1])
    return None


def _named(owner: type[BaseModel], key: object) -> FieldInfo | None:
    return next((field for name, field in owner.model_fields.items() if key in (name, field.alias)), None)


def _model_at(model: type[BaseModel], location: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the model whose keys stand at a location: fields step into it, indices and map keys step over."""
    here: Any = model
    for key in location:
        owner = _as_model(here)
        if owner is not None:
            field = _named(owner, key)
            here = field.annotation if field is not None else None
        else:
            here = _item(here)
    return _as_model(here)


def _as_model(annotation: Any) -> type[BaseModel] | None:
    return next((part for part in _parts(annotation) if isinstance(part, type) and issubclass(part, BaseModel)), None)


def _item(annotation: Any) -> Any:
    for part in _parts(annotation):
        origin = get_origin(part)
        if isinstance(origin, type) and issubclass(origin, Mapping):
            return get_args(part)[1]
        if origin is tuple:
            return get_args(part)[0]
    return None


def _parts(annotation: Any) -> Iterator[Any]:
    """Unwrap Annotated and unions."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _parts(part)
    else:
        yield annotation
