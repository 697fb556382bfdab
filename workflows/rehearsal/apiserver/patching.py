"""PATCH: the body's content type says how it changes the object."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from workflows.rehearsal.apiserver import bodies, errors, json_patch, merge_patch, strategic_patch
from workflows.rehearsal.apiserver.apply import apply
from workflows.rehearsal.apiserver.conform import check_identity, undeclared
from workflows.rehearsal.apiserver.entry import Object
from workflows.rehearsal.apiserver.managed import APPLY, Manager
from workflows.rehearsal.apiserver.resources import Resource

JSON, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY_YAML = "application/strategic-merge-patch+json", "application/apply-patch+yaml"


@dataclass(frozen=True)
class Patch:
    """A patch request. `force` is meant for apply alone."""

    content_type: str
    body: Any
    force: bool = False

    @property
    def applies(self) -> bool:
        """Whether this is server-side apply, which also creates."""
        return self.content_type == APPLY_YAML


def _json(live: Object, body: Any, _: Resource) -> Any:
    return json_patch.patch(live, body)


def _merge(live: Object, body: Any, _: Resource) -> Any:
    return merge_patch.merge(live, bodies.as_object(body))


def _strategic(live: Object, body: Any, resource: Resource) -> Any:
    return strategic_patch.merge(live, bodies.as_object(body), resource.schema)


_PATCHES: Mapping[str, Callable[[Object, Any, Resource], Any]] = {JSON: _json, MERGE: _merge, STRATEGIC: _strategic}


def check_content_type(content_type: str, resource: Resource) -> None:
    """Raises ApiError: 415, this resource takes no such patch (custom ones no strategic merge)."""
    accepted = [JSON, MERGE, *([] if resource.custom else [STRATEGIC]), APPLY_YAML]
    if content_type not in accepted:
        raise errors.unsupported_media_type(accepted)


def patched(live: Object, patch: Patch, resource: Resource) -> Object:
    """The object after a JSON, merge or strategic merge patch.

    Raises:
        ApiError: 400 or 422, the patch cannot be applied.
    """
    try:
        result = _PATCHES[patch.content_type](live, patch.body, resource)
    except json_patch.PatchError as error:
        raise errors.unprocessable(f"the server rejected our request due to an error in our request: {error}") from error
    except strategic_patch.PatchError as error:
        raise errors.bad_request(str(error)) from error
    return bodies.as_object(result)


def applied(live: Object, patch: Patch, resource: Resource, subresource: str, name: str, manager: str) -> Object:
    """The object after server-side apply, with its ownership records.

    Raises:
        ApiError: 400, 409, or 500 for a field that the schema does not declare.
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
    unknown = undeclared(resource, body)
    if unknown:
        listed = ", ".join(f".{path}: field not declared in schema" for path in unknown)
        raise errors.ApiError(
            500, "", f"failed to create typed patch object ({name}; {resource.api_version}, Kind={resource.kind}): {listed}"
        )
    without = _not_settable(resource, subresource)
    result = apply(live, body, resource.schema, Manager(manager, APPLY, subresource), force=patch.force, without=without)
    return result | {"apiVersion": resource.api_version, "kind": resource.kind}


def _not_settable(resource: Resource, subresource: str) -> frozenset[str]:
    if subresource == "status":
        return frozenset({"spec"})
    return frozenset({"status"}) if "status" in resource.subresources else frozenset()
