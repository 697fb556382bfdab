"""Faults of the API server that a rehearsal can set: slow answers, refused requests, dropped watches."""

import asyncio

import msgspec

from workflows.rehearsal.apiserver import errors

_MESSAGES = {
    409: (
        "Conflict",
        "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version",
    ),
    429: ("TooManyRequests", "the server has received too many requests and has asked us to try again later"),
    500: ("InternalError", "Internal error occurred: emulated disturbance"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
}


class FailNext(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A fault that refuses the next `count` requests.

    `methods` limits it to some HTTP methods (empty: all), `path_prefix` to paths that start with it.
    """

    count: int
    status: int = 500
    retry_after_s: int = 0
    methods: list[str] = []
    path_prefix: str = ""

    def hits(self, method: str, path: str) -> bool:
        """Return True if the fault applies to requests with this method and path."""
        return (not self.methods or method in self.methods) and path.startswith(self.path_prefix)


class ApiDisturbance(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The faults of the API server that are in force.

    `latency_ms` delays every request until it is set back to 0. `drop_watches` ends all watches once. `expire_watches` also makes
    every earlier revision and continue token answer 410. Both act once when they are set, and read back as false.
    """

    latency_ms: int = 0
    fail_next: FailNext | None = None
    drop_watches: bool = False
    expire_watches: bool = False

    def check(self) -> None:
        """Raise StatusError (400) for negative numbers or a status that the server cannot produce."""
        if self.latency_ms < 0 or (self.fail_next and (self.fail_next.status not in _MESSAGES or self.fail_next.count < 0)):
            raise errors.bad_request(f"latency_ms and count must not be negative; status is one of {sorted(_MESSAGES)}")

    async def before(self, method: str, path: str) -> None:
        """Delay or refuse a request as the disturbance says; the refusal is raised as StatusError."""
        if self.latency_ms:
            await asyncio.sleep(self.latency_ms / 1000)
        fault = self.fail_next
        if fault is None or not fault.count or not fault.hits(method, path):
            return
        fault.count -= 1
        reason, message = _MESSAGES[fault.status]
        headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
        details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else None
        raise errors.StatusError(fault.status, reason, message, details=details, headers=headers)
