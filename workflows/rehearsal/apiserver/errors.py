"""Every refusal of the emulated server, as the Kubernetes `Status` object that a client reads.

Reasons, codes and wording follow k8s.io/apimachinery `api/errors`: clients key on `reason`, people on `message`.
"""

from collections.abc import Sequence
from typing import Any


class ApiError(Exception):
    """A request that is refused. `headers` go into the answer (for instance `Retry-After`)."""

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
        """The `v1.Status` body of this error."""
        body: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        if self.details:
            body["details"] = self.details
        return body | {"code": self.code}


SUCCESS: dict[str, Any] = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
"""The Status of what went well and has nothing else to say."""


def qualified(group: str, plural: str) -> str:
    """`daemonsets.apps`, or `pods` in the core group: how Kubernetes names a resource in messages."""
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> dict[str, Any]:
    return {key: value for key, value in (("name", name), ("group", group), ("kind", plural)) if value}


def bad_request(message: str) -> ApiError:
    """400: the request itself cannot be understood."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: no bearer token, or a wrong one."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(group: str, plural: str, name: str, why: str, *, cause: dict[str, str] | None = None) -> ApiError:
    """403: admission says no."""
    details = _details(group, plural, name) | ({"causes": [cause]} if cause else {})
    return ApiError(403, "Forbidden", f'{qualified(group, plural)} "{name}" is forbidden: {why}', details=details)


def no_such_path() -> ApiError:
    """404: no resource is served under this path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource", details={})


def not_found(group: str, plural: str, name: str) -> ApiError:
    """404: the object does not exist."""
    return ApiError(404, "NotFound", f'{qualified(group, plural)} "{name}" not found', details=_details(group, plural, name))


def method_not_allowed() -> ApiError:
    """405: the resource exists, the verb does not."""
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def not_acceptable() -> ApiError:
    """406: the client accepts none of the served representations."""
    return ApiError(406, "NotAcceptable", "only the following media types are accepted: application/json")


def already_exists(group: str, plural: str, name: str) -> ApiError:
    """409 on create."""
    return ApiError(
        409, "AlreadyExists", f'{qualified(group, plural)} "{name}" already exists', details=_details(group, plural, name)
    )


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    """409: a precondition (resourceVersion, uid) does not hold."""
    message = f'Operation cannot be fulfilled on {qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, details=_details(group, plural, name))


def stale(group: str, plural: str, name: str) -> ApiError:
    """409: the object changed since the client read it."""
    return conflict(
        group, plural, name, "the object has been modified; please apply your changes to the latest version and try again"
    )


def expired(message: str) -> ApiError:
    """410: the resourceVersion or continue token is too old; the client must list again."""
    return ApiError(410, "Expired", message)


def too_large() -> ApiError:
    """413: the request body is above the server's limit."""
    return ApiError(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728")


def etcd_refused() -> ApiError:
    """500: the object is above what etcd takes in one request."""
    return ApiError(500, "", "etcdserver: request is too large")


def unsupported_media_type(accepted: Sequence[str]) -> ApiError:
    """415: the body's content type is not one of `accepted`."""
    listed = ", ".join(accepted)
    message = f"the body of the request was in an unknown format - accepted media types include: {listed}"
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(group: str, kind: str, name: str, problems: Sequence[str]) -> ApiError:
    """422: the object breaks its schema or rules. A problem reads `PATH: Invalid value: …`."""
    listed = problems[0] if len(problems) == 1 else "[" + ", ".join(problems) + "]"
    causes = [{"reason": _cause(text), "message": text.partition(": ")[2], "field": text.partition(": ")[0]} for text in problems]
    details = {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value} | {"causes": causes}
    return ApiError(422, "Invalid", f'{qualified(group, kind)} "{name}" is invalid: {listed}', details=details)


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


def unprocessable(message: str) -> ApiError:
    """422: a patch cannot be applied to this object."""
    return ApiError(422, "Invalid", message)


def too_many_requests(message: str, retry_after_s: int) -> ApiError:
    """429 with `Retry-After`."""
    details = {"retryAfterSeconds": retry_after_s} if retry_after_s else None
    return ApiError(
        429, "TooManyRequests", message, details=details, headers={"Retry-After": str(retry_after_s)} if retry_after_s else {}
    )


def too_new(asked: int, current: int) -> ApiError:
    """504: the client asks for a resourceVersion that this server has not reached (for instance after a restart)."""
    message = f"Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return ApiError(504, "Timeout", message, details={"causes": [cause], "retryAfterSeconds": 1}, headers={"Retry-After": "1"})
