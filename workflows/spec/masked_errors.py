"""Errors of section rules that pydantic skips because a field of the section is invalid."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from workflows.spec.validation_errors import as_model, item, meant, named

MOST_KNOWN = 50
"""With more known errors than this the rules are not run, since their errors would not be shown."""
_Place = tuple[int | str, ...]


def findings(model: type[BaseModel], data: object, known: Collection[ErrorDetails]) -> list[ErrorDetails]:
    """Return the errors of section rules that the invalid fields in `known` kept from running, in the form of pydantic's errors.

    A rule sees the valid fields. An invalid field counts as present; a rule that needs its value is skipped.
    """
    return list(_below(model, data, (), {detail["loc"] for detail in known})) if len(known) <= MOST_KNOWN else []


def _below(annotation: Any, data: object, place: _Place, broken: Collection[_Place]) -> Iterator[ErrorDetails]:
    if not any(len(loc) > len(place) and loc[: len(place)] == place for loc in broken):
        return  # sound, hence its rules were asked
    model = as_model(annotation)
    if isinstance(data, Mapping):
        for key, value in data.items():
            field = named(model, key) if model else None
            inner = field.annotation if field else None if model else item(annotation)
            yield from _below(inner, value, (*place, key), broken)
        if model is not None:
            yield from _asked(model, data, place)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from _below(item(annotation), value, (*place, index), broken)


def _asked(model: type[BaseModel], data: Mapping[str, object], place: _Place) -> Iterator[ErrorDetails]:
    """Run the rules of one section on its valid fields and yield their errors."""
    made = _taken(model, data)
    for rule in model.__pydantic_decorators__.model_validators.values():
        if rule.info.mode != "after":
            continue
        try:
            rule.func(made)
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


_BROKEN = _Broken()


def _taken(model: type[BaseModel], data: Mapping[str, object]) -> Any:
    """Return a section built from its valid fields, without validation; a required field that is missing stays missing."""
    values: dict[str, Any] = {}
    for key, value in data.items():
        field = named(model, key) or named(model, meant(model, (key,)))
        if field is not None:
            name = next(name for name, one in model.model_fields.items() if one is field)
            values[name] = _sound(field.rebuild_annotation(), value)
    return model.model_construct(**values)


def _sound(annotation: Any, value: object) -> Any:
    """Return a value as its field parses it; lists and maps keep their valid items only, and sections their valid fields."""
    model, inner = as_model(annotation), item(annotation)
    if inner is not None and isinstance(value, list):
        return tuple(found for one in value if (found := _sound(inner, one)) is not _BROKEN)
    try:
        return TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        pass
    if model is not None and isinstance(value, Mapping):
        return _taken(model, value)
    if inner is not None and isinstance(value, Mapping):
        return {key: found for key, one in value.items() if (found := _sound(inner, one)) is not _BROKEN}
    return _BROKEN
