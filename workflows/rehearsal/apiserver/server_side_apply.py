"""Server-side apply: merges a configuration, refuses fields of other managers and removes fields that the manager dropped."""

import copy
from dataclasses import replace
from typing import Any

from workflows.rehearsal.apiserver import errors, fieldset, managed_fields
from workflows.rehearsal.apiserver.fieldset import FieldPath, FieldSet
from workflows.rehearsal.apiserver.managed_fields import FieldManager, FieldManagers
from workflows.rehearsal.apiserver.stored_object import Object
from workflows.rehearsal.apiserver.type_schema import Schema

Clash = tuple[FieldManager, FieldPath]


def _merge(live: Any, applied: Any, schema: Schema) -> Any:
    """Merge by type: objects field by field, lists by their list type; every other value is replaced."""
    if isinstance(applied, dict) and isinstance(live, dict) and not schema.atomic_map:
        fields = {key: _merge(live.get(key), value, schema.child(key)) for key, value in applied.items()}
        return {**live, **fields}
    if isinstance(applied, list) and isinstance(live, list) and fieldset.associative(live + applied, schema):
        return _merge_list(live, applied, schema)
    return applied


def _merge_list(live: list[Any], applied: list[Any], schema: Schema) -> list[Any]:
    merged = list(live)
    positions = {fieldset.element_step(element, schema): index for index, element in enumerate(live)}
    for element in applied:
        position = positions.get(fieldset.element_step(element, schema))
        if position is None:
            merged.append(element)
        else:
            merged[position] = _merge(merged[position], element, schema.items)
    return merged


def _clashes(
    live: Object, merged: Object, mine: FieldSet, me: FieldManager, managers: FieldManagers, schema: Schema
) -> list[Clash]:
    def changed(path: FieldPath) -> bool:
        return path[-1].startswith("f:") and fieldset.get(live, schema, path) != fieldset.get(merged, schema, path)

    others = [(manager, owner.fields & mine) for manager, owner in managers.items() if manager != me]
    return [(manager, path) for manager, shared in others for path in sorted(shared) if changed(path)]


def _conflict(clashes: list[Clash], managers: FieldManagers) -> errors.StatusError:
    by_manager: dict[FieldManager, list[str]] = {}
    for manager, path in clashes:
        by_manager.setdefault(manager, []).append(fieldset.dotted_path(path))
    causes, lines = [], []
    for manager, paths in by_manager.items():
        with_status = f' with subresource "{manager.subresource}"' if manager.subresource else ""
        using = f" using {managers[manager].api_version}" if manager.operation == managed_fields.UPDATE else ""
        owner_text = f'"{manager.name}"{with_status}{using}'
        lines.append(
            f"conflict with {owner_text}: {paths[0]}"
            if len(paths) == 1
            else f"conflicts with {owner_text}:\n- " + "\n- ".join(paths)
        )
        causes += [{"reason": "FieldManagerConflict", "message": f"conflict with {owner_text}", "field": path} for path in paths]
    plural = "" if len(clashes) == 1 else "s"
    message = f"Apply failed with {len(clashes)} conflict{plural}: " + "\n".join(lines)
    return errors.StatusError(409, "Conflict", message, details={"causes": causes})


def _drop_unmentioned(merged: Object, dropped: FieldSet, others: FieldSet, schema: Schema) -> Object:
    """Remove fields that the manager owned alone and no longer mentions.

    A list element goes as a whole unless others own a part of it; its key fields only go together with it.
    """
    result = copy.deepcopy(merged)
    # Removing a parent would take the fields of others below it away.
    holders = {path[:size] for path in others for size in range(1, len(path))}
    for path in sorted(dropped, key=len):  # parents first: elements go whole
        if path not in holders and not fieldset.is_key(path):
            fieldset.remove(result, schema, path)
    return result


def apply(live: Object, applied: Object, schema: Schema, me: FieldManager, *, force: bool, without: frozenset[str]) -> Object:
    """Return `live` after the manager `me` applied a configuration, with updated managedFields.

    `live` is `{"metadata": {}}` for an object that does not exist yet. `without` names the top-level fields that this sub-resource
    must not set. Raises StatusError (409) if other managers own a field with another value and `force` is false.
    """
    managers = managed_fields.read_managers(live) or managed_fields.before_first_apply(live, schema)
    applied = {key: value for key, value in applied.items() if key not in without}
    mine = fieldset.owned(applied, schema)
    merged = _merge(live, applied, schema)
    clashes = _clashes(live, merged, mine, me, managers, schema)
    if clashes and not force:
        raise _conflict(clashes, managers)
    for manager, path in clashes:
        managers[manager] = replace(managers[manager], fields=managers[manager].fields - {path})
    own = managers.get(me)
    others = fieldset.EMPTY.union(*(owner.fields for owner_text, owner in managers.items() if owner_text != me))
    dropped = own.fields - mine - others if own else fieldset.EMPTY
    result = _drop_unmentioned(merged, dropped, others, schema)
    managed_fields.write_managers(result, managed_fields.with_fields(managers, me, mine, applied["apiVersion"]))
    return result
