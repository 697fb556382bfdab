"""Strategic merge patch of built-in kinds: lists with a merge key are merged by element (apimachinery `strategicpatch`)."""

from typing import Any

from workflows.rehearsal.apiserver.type_schema import Schema

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_FROM = "$deleteFromPrimitiveList/"


class StrategicPatchError(Exception):
    """A patch that does not fit the kind."""


def strategic_merge(target: Any, patch: Any, schema: Schema) -> Any:
    """Return `target` after the patch, merged as the kind's schema says. Neither argument changes.

    Raises StrategicPatchError for an unknown directive or a list element without its merge key.
    """
    if isinstance(patch, dict):
        return _object(target if isinstance(target, dict) else {}, patch, schema)
    if isinstance(patch, list) and "merge" in schema.patch_strategy:
        return _list(target if isinstance(target, list) else [], patch, schema)
    return patch


def _object(target: dict[str, Any], patch: dict[str, Any], schema: Schema) -> dict[str, Any]:
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise StrategicPatchError(f"Unknown patch type found: {directive}")
    merged = {key: value for key, value in target.items() if _RETAIN not in patch or key in patch[_RETAIN]}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            merged[name] = [element for element in merged.get(name, []) if element not in value]
        elif not key.startswith("$"):
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = strategic_merge(merged.get(key), value, schema.child(key))
    # Order comes last: it concerns elements that the patch itself adds.
    for key, order in patch.items():
        if key.startswith(_ORDER):
            _reorder(merged, key.removeprefix(_ORDER), order, schema)
    return merged


def _list(target: list[Any], patch: list[Any], schema: Schema) -> list[Any]:
    key = schema.merge_key
    if not key:
        return target + [element for element in patch if element not in target]
    if any(isinstance(element, dict) and element.get(_DIRECTIVE) == "replace" for element in patch):
        return [element for element in patch if not (isinstance(element, dict) and _DIRECTIVE in element)]
    merged = list(target)
    for element in patch:
        if not isinstance(element, dict) or key not in element:
            raise StrategicPatchError(f"map: {element} does not contain declared merge key: {key}")
        position = next((at for at, held in enumerate(merged) if isinstance(held, dict) and held.get(key) == element[key]), None)
        if element.get(_DIRECTIVE) == "delete":
            merged = [held for held in merged if not (isinstance(held, dict) and held.get(key) == element[key])]
        elif position is None:
            merged.append(strategic_merge({}, element, schema.items))
        else:
            merged[position] = strategic_merge(merged[position], element, schema.items)
    return merged


def _reorder(merged: dict[str, Any], name: str, order: list[Any], schema: Schema) -> None:
    """Sort the elements as `$setElementOrder` lists them; other elements follow in their present order."""
    elements = merged.get(name)
    if not isinstance(elements, list):
        return
    key = schema.child(name).merge_key
    values = [element.get(key) if isinstance(element, dict) else element for element in order]
    ranks = {value: rank for rank, value in enumerate(values)}
    merged[name] = sorted(
        elements, key=lambda element: ranks.get(element.get(key) if isinstance(element, dict) else element, len(ranks))
    )
