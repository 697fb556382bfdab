"""Refusals of the emulated server as Kubernetes `Status` objects.

Reasons, codes and wording follow k8s.io/apimachinery `api/errors`: clients read `reason`, people read `message`.
"""

from collections.abc import Sequence
from typing import Any


class StatusError(Exception):
    """Raised to refuse a request; the answer is a `Status` object with HTTP status `code` and these `headers`."""

    def __init__(
        self, code: int, reason: str, message: str, *, details: dict[str, Any] | None = None, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.headers = headers or {}

    def status(self) -> dict[str, Any]:
        """Return this error as a `v1.Status` object, the body of the answer."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


SUCCESS: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
"""The `Status` object that answers a successful request that returns no object."""


def qualified(group: str, plural: str) -> str:
    """Return a resource's name as Kubernetes messages show it: `daemonsets.apps`, or `pods` in the core group."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def bad_request(message: str) -> StatusError:
    """Return a StatusError (400) for a request that cannot be understood."""
    return StatusError(400, "BadRequest", message)


def unauthorized() -> StatusError:
    """Return a StatusError (401) for a missing or wrong bearer token."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str, *, cause: dict[str, str] | None = None) -> StatusError:
    """Return a StatusError (403) for a write that admission refuses; `cause` goes into `details.causes`."""
    details = _details(group, plural, name) | ({"causes": [cause]} if cause else {})
    return StatusError(403, "Forbidden", f'{qualified(group, plural)} "{name}" is forbidden: {why}', details=details)


def no_such_path() -> StatusError:
    """Return a StatusError (404) for a path under which no resource is served."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(group: str, plural: str, name: str) -> StatusError:
    """Return a StatusError (404) for an object that does not exist."""
    return StatusError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found', details=_details(group, plural, name))


def method_not_allowed() -> StatusError:
    """Return a StatusError (405) for an HTTP method that the path does not support."""
    return StatusError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_acceptable() -> StatusError:
    """Return a StatusError (406) for a client that accepts none of the served representations."""
    return StatusError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def already_exists(group: str, plural: str, name: str) -> StatusError:
    """Return a StatusError (409) for the creation of an object that exists already."""
    message = f'{qualified(group, plural)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, details=_details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    """Return a StatusError (409) for a precondition (resourceVersion, uid) that does not hold."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return StatusError(409, "Conflict", message, details=_details(group, plural, name))


def stale(group: str, plural: str, name: str) -> StatusError:
    """Return a StatusError (409) for a write to an object that has changed since the client read it."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(group, plural, name, why)


def expired(message: str) -> StatusError:
    """Return a StatusError (410) for a resourceVersion or continue token that is too old, so that the client lists again."""
    return StatusError(410, "Expired", message)


def too_large() -> StatusError:
    """Return a StatusError (413) for a request body above the server's limit of 3 MiB."""
    return StatusError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


def etcd_refused() -> StatusError:
    """Return a StatusError (500) for an object above the size that etcd accepts in one request."""
    return StatusError(500, "", "etcdserver: request is too large")


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    """Return a StatusError (415) for a body whose content type is not one of `accepted`."""
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return StatusError(415, "UnsupportedMediaType", message)


def invalid(group: str, kind: str, name: str, problems: Sequence[str]) -> StatusError:
    """Return a StatusError (422) for an object that breaks its schema or rules; each problem reads `PATH: Invalid value: …`."""
    listed = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
    causes = [{"reason": _cause(text), "message": text.partition(": ")[2], "field": text.partition(": ")[0]} for text in problems]
    details = _details(group, kind, name) | {"causes": causes}
    return StatusError(422, "Invalid", f'{qualified(group, kind)} "{name}" is invalid: {listed}', details=details)


_CAUSES = {
    "Required value": "FieldValueRequired",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}


def _cause(problem: str) -> str:
    text = problem.partition(": ")[2]
    return next((reason for start, reason in _CAUSES.items() if text.startswith(start)), "FieldValueInvalid")


def unusable_patch(why: str) -> StatusError:
    """Return a StatusError (422) for a JSON Patch that cannot be applied to the object."""
    return StatusError(422, "Invalid", f"the server rejected our request due to an error in our request: {why}")


def try_later(code: int, reason: str, message: str, retry_after_s: int) -> StatusError:
    """Return a StatusError (`code`) that asks for a retry after `retry_after_s` seconds; 0: without a `Retry-After` header."""
    if not retry_after_s:
        return StatusError(code, reason, message)
    details, headers = {"retryAfterSeconds": retry_after_s}, {"Retry-After": str(retry_after_s)}
    return StatusError(code, reason, message, details=details, headers=headers)


def too_new(requested: int, current: int) -> StatusError:
    """Return a StatusError (504) for a resourceVersion that this server has not reached, for instance after a restart."""
    message = f"Too large resource version: {requested}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return StatusError(504, "Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1}, headers={"Retry-After": "1"})
