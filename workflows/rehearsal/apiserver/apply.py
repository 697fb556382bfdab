"""Server-side apply: merge a configuration, refuse what others own, remove what its manager no longer mentions."""

import copy
from dataclasses import replace
from typing import Any

from workflows.rehearsal.apiserver import errors, fieldset, managed
from workflows.rehearsal.apiserver.entry import Object
from workflows.rehearsal.apiserver.fieldset import Fields, Path
from workflows.rehearsal.apiserver.managed import Manager, Managers
from workflows.rehearsal.apiserver.schema import Schema

Clash = tuple[Manager, Path]


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    """The typed merge: objects by field, lists by their type, everything else replaced."""
    if isinstance(applied, dict) and isinstance(live, dict) and not schema.atomic_map:
        fields = {key: _merge(live.get(key), value, schema.child(key)) for key, value in applied.items()}
        return {**live, **fields}
    if isinstance(applied, list) and isinstance(live, list) and fieldset.associative(live + applied, schema):
        return _merge_list(live, applied, schema)
    return applied


def _merge_list(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    merged = list(live)
    places = {fieldset.element_step(element, schema): index for index, element in enumerate(live)}
    for element in applied:
        place = places.get(fieldset.element_step(element, schema))
        if place is None:
            merged.append(element)
        else:
            merged[place] = _merge(merged[place], element, schema.items)
    return merged


def _clashes(live: Object, merged: Object, mine: Fields, me: Manager, managers: Managers, schema: Schema) -> list[Clash]:
    def changed(path: Path) -> bool:
        return path[-1].startswith("f:") and fieldset.get(live, schema, path) != fieldset.get(merged, schema, path)

    others = [(manager, owner.fields & mine) for manager, owner in managers.items() if manager != me]
    return [(manager, path) for manager, shared in others for path in sorted(shared) if changed(path)]


def _conflict(clashes: list[Clash], managers: Managers) -> errors.ApiError:
    by_manager: dict[Manager, list[str]] = {}
    for manager, path in clashes:
        by_manager.setdefault(manager, []).append(fieldset.dotted(path))
    causes, lines = [], []
    for manager, paths in by_manager.items():
        with_status = f' with subresource "{manager.subresource}"' if manager.subresource else ""
        using = f" using {managers[manager].api_version}" if manager.operation == managed.UPDATE else ""
        who = f'"{manager.name}"{with_status}{using}'
        lines.append(f"conflict with {who}: {paths[0]}" if len(paths) == 1 else f"conflicts with {who}:\n- " + "\n- ".join(paths))
        causes += [{"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path} for path in paths]
    plural = "" if len(clashes) == 1 else "s"
    message = f"Apply failed with {len(clashes)} conflict{plural}: " + "\n".join(lines)
    return errors.ApiError(409, "Conflict", message, details={"causes": causes})


def _drop_unmentioned(merged: Object, dropped: Fields, others: Fields, schema: Schema) -> Object:
    """Takes out what its manager owned alone: list elements whole, unless others own something in them; keys only with them."""
    result = copy.deepcopy(merged)
    holders = {path[:size] for path in others for size in range(1, len(path))}
    for path in sorted(dropped, key=len):
        if path not in holders and not fieldset.is_key(path):
            fieldset.remove(result, schema, path)
    return result


def apply(live: Object, applied: Object, schema: Schema, me: Manager, *, force: bool, without: frozenset[str]) -> Object:
    """`live` after `me` applied a configuration, with the new ownership records in it.

    `live` is `{"metadata": {}}` for an object that does not exist yet. `without` names the top-level fields that this sub-resource
    may not set.

    Raises:
        ApiError: 409, others own fields with other values, and `force` is not given.
    """
    managers = managed.read(live) or managed.before_first_apply(live, schema)
    applied = {key: value for key, value in applied.items() if key not in without}
    mine = fieldset.owned(applied, schema)
    merged = _merge(live, applied, schema)
    clashes = _clashes(live, merged, mine, me, managers, schema)
    if clashes and not force:
        raise _conflict(clashes, managers)
    for manager, path in clashes:
        managers[manager] = replace(managers[manager], fields=managers[manager].fields - {path})
    held = managers.get(me)
    others = fieldset.EMPTY.union(*(owner.fields for who, owner in managers.items() if who != me))
    dropped = held.fields - mine - others if held else fieldset.EMPTY
    result = _drop_unmentioned(merged, dropped, others, schema)
    managed.write(result, managed.with_fields(managers, me, mine, applied["apiVersion"]))
    return result
