"""PATCH requests: JSON Patch, JSON Merge Patch, strategic merge patch (apimachinery `strategicpatch`), server-side apply."""

import copy
from dataclasses import dataclass
from typing import Any

from workflows.rehearsal.apiserver import bodies, errors
from workflows.rehearsal.apiserver.builtin_decoder import Schema
from workflows.rehearsal.apiserver.lifecycle import check_identity, undeclared_fields
from workflows.rehearsal.apiserver.managed_fields import APPLY, FieldManager, apply
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import Object

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_ORDER = "$setElementOrder/"
_DELETE_FROM = "$deleteFromPrimitiveList/"


class StrategicPatchError(Exception):
    """Raised for a strategic merge patch with an unknown directive, or with a list element without its merge key."""


def strategic_merge(target: Any, patch: Any, schema: Schema) -> Any:
    """Return `target` with a strategic merge patch applied as `schema` says. Neither argument changes.

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
        same = [at for at, entry in enumerate(merged) if isinstance(entry, dict) and entry.get(key) == element[key]]
        if element.get(_DIRECTIVE) == "delete":
            merged = [entry for at, entry in enumerate(merged) if at not in same]
        elif not same:
            merged.append(strategic_merge({}, element, schema.items))
        else:
            merged[same[0]] = strategic_merge(merged[same[0]], element, schema.items)
    return merged


def _reorder(merged: dict[str, Any], name: str, order: list[Any], schema: Schema) -> None:
    """Sort the list `name` in place as `$setElementOrder` says; elements that it does not name follow in their present order."""
    elements = merged.get(name)
    if not isinstance(elements, list):
        return
    key = schema.child(name).merge_key

    def identity(element: Any) -> Any:
        return element.get(key) if isinstance(element, dict) else element

    ranks = {identity(element): rank for rank, element in enumerate(order)}
    merged[name] = sorted(elements, key=lambda element: ranks.get(identity(element), len(ranks)))


JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class PatchRequest:
    """The decoded body of a PATCH request with its content type.

    `force` lets server-side apply take over fields that other managers own; other patches ignore it.
    """

    content_type: str
    body: Any
    force: bool = False

    @property
    def applies(self) -> bool:
        """Return True for server-side apply, which unlike other patches also creates missing objects."""
        return self.content_type == APPLY_PATCH


def json_patched(document: Any, operations: Any) -> Any:
    """Return a copy of a document after all operations of a JSON Patch (RFC 6902).

    Raises StatusError (422) if an operation is malformed or does not fit the document, or if its `test` fails.
    """
    # only foreign clients send JSON Patch, and the builder image, in which a rehearsal on Argo is simulated, has no library for it
    import jsonpatch
    from jsonpointer import JsonPointerException

    # jsonpatch would parse a string as JSON text; a real server decodes the body once.
    if not isinstance(operations, list):
        raise errors.unusable_patch("a JSON Patch is a list of operations")
    result = copy.deepcopy(document)
    for operation in operations:  # one by one, so that the error can name the operation as a real server does
        try:
            result = jsonpatch.apply_patch(result, [operation], in_place=True)
        except jsonpatch.JsonPatchTestFailed as error:
            raise errors.unusable_patch(f"testing value {operation['path']} failed: test failed") from error
        except (jsonpatch.JsonPatchException, JsonPointerException) as error:
            raise errors.unusable_patch(str(error)) from error
    return result


def merge_patched(target: Any, patch: Any) -> Any:
    """Return `target` with a JSON Merge Patch (RFC 7386) applied, in which null deletes a key. Neither argument changes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patched(merged.get(key), value)
    return merged


def check_content_type(content_type: str, resource: ServedResource) -> None:
    """Raise StatusError (415) if the resource takes no patch of this type; custom ones take no strategic merge patch."""
    accepted = [JSON_PATCH, MERGE_PATCH, *([] if resource.custom else [STRATEGIC_PATCH]), APPLY_PATCH]
    if content_type not in accepted:
        raise errors.unsupported_media_type(accepted)


def apply_patch(live: Object, patch: PatchRequest, resource: ServedResource) -> Object:
    """Return `live` with a JSON, merge or strategic merge patch applied. Raises StatusError (400 or 422) if that is impossible."""
    if patch.content_type == JSON_PATCH:
        return bodies.as_object(json_patched(live, patch.body))
    body = bodies.as_object(patch.body)
    if patch.content_type == MERGE_PATCH:
        return bodies.as_object(merge_patched(live, body))
    try:
        return bodies.as_object(strategic_merge(live, body, resource.schema))
    except StrategicPatchError as error:
        raise errors.bad_request(str(error)) from error


def apply_configuration(
    live: Object, patch: PatchRequest, resource: ServedResource, subresource: str, name: str, manager: str
) -> Object:
    """Return `live` after the field manager `manager` applied the patch's configuration, with updated managedFields.

    Raises StatusError: 400 (identity), 409 (conflict), 422 (no manager), or 500 for a field that the schema does not declare.
    """
    body = bodies.as_object(patch.body)
    if not manager:
        raise errors.invalid("meta.k8s.io", "PatchOptions", "", ["fieldManager: Required value: is required for apply patch"])
    check_identity(resource, body)
    if not body.get("kind") or not body.get("apiVersion"):
        raise errors.bad_request("apiVersion and kind are required in an apply configuration")
    meta = body["metadata"]
    if meta.get("managedFields"):
        raise errors.bad_request("metadata.managedFields must be nil")
    if meta.setdefault("name", name) != name:
        raise errors.bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    unknown = undeclared_fields(resource, body)
    if unknown:
        listed = ", ".join(f".{path}: field not declared in schema" for path in unknown)
        raise errors.StatusError(
            500, "", f"failed to create typed patch object ({name}; {resource.api_version}, Kind={resource.kind}): {listed}"
        )
    without = frozenset({"spec"} if subresource == "status" else {"status"} & resource.subresources)
    result = apply(live, body, resource.schema, FieldManager(manager, APPLY, subresource), force=patch.force, without=without)
    return result | {"apiVersion": resource.api_version, "kind": resource.kind}
