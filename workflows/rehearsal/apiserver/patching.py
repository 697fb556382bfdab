"""PATCH requests: JSON Patch, JSON Merge Patch, strategic merge patch and server-side apply, chosen by the content type."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jsonpatch
from jsonpointer import JsonPointerException

from workflows.rehearsal.apiserver import bodies, errors, strategic_patch
from workflows.rehearsal.apiserver.managed_fields import APPLY, FieldManager
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.server_side_apply import apply
from workflows.rehearsal.apiserver.stored_object import Object
from workflows.rehearsal.apiserver.write_pipeline import check_identity, undeclared_fields

JSON_PATCH, MERGE_PATCH = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC_PATCH, APPLY_PATCH = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class PatchRequest:
    """A patch with its content type; `force` has a meaning for server-side apply alone."""

    content_type: str
    body: Any
    force: bool = False

    @property
    def applies(self) -> bool:
        """Return True for server-side apply, which also creates objects."""
        return self.content_type == APPLY_PATCH


def json_patched(document: Any, operations: Any) -> Any:
    """Return a copy of the document after all operations of a JSON Patch (RFC 6902).

    Raises StatusError (422) if an operation is malformed or does not fit the document, or if a test fails.
    """
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
    """Return `target` after a JSON Merge Patch (RFC 7386): null deletes a key. Neither argument changes."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patched(merged.get(key), value)
    return merged


def _json(live: Object, body: Any, _: ServedResource) -> Any:
    return json_patched(live, body)


def _merge(live: Object, body: Any, _: ServedResource) -> Any:
    return merge_patched(live, bodies.as_object(body))


def _strategic(live: Object, body: Any, resource: ServedResource) -> Any:
    return strategic_patch.strategic_merge(live, bodies.as_object(body), resource.schema)


_PATCHES: Mapping[str, Callable[[Object, Any, ServedResource], Any]] = {
    JSON_PATCH: _json,
    MERGE_PATCH: _merge,
    STRATEGIC_PATCH: _strategic,
}


def check_content_type(content_type: str, resource: ServedResource) -> None:
    """Raise StatusError (415) if the resource does not take this kind of patch; custom resources take no strategic merge patch."""
    accepted = [JSON_PATCH, MERGE_PATCH, *([] if resource.custom else [STRATEGIC_PATCH]), APPLY_PATCH]
    if content_type not in accepted:
        raise errors.unsupported_media_type(accepted)


def patched(live: Object, patch: PatchRequest, resource: ServedResource) -> Object:
    """Return the object after a JSON, merge or strategic merge patch. Raises StatusError (400 or 422) if it cannot be applied."""
    try:
        result = _PATCHES[patch.content_type](live, patch.body, resource)
    except strategic_patch.StrategicPatchError as error:
        raise errors.bad_request(str(error)) from error
    return bodies.as_object(result)


def applied(live: Object, patch: PatchRequest, resource: ServedResource, subresource: str, name: str, manager: str) -> Object:
    """Return the object after server-side apply, with its ownership records.

    Raises StatusError: 400, 409, or 500 for a field that the schema does not declare.
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
    without = _not_settable(resource, subresource)
    result = apply(live, body, resource.schema, FieldManager(manager, APPLY, subresource), force=patch.force, without=without)
    return result | {"apiVersion": resource.api_version, "kind": resource.kind}


def _not_settable(resource: ServedResource, subresource: str) -> frozenset[str]:
    if subresource == "status":
        return frozenset({"spec"})
    return frozenset({"status"}) if "status" in resource.subresources else frozenset()
