"""Faults of the API itself, which a rehearsal asks for: slow answers, refused requests, dropped watches."""

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
    """Refuses the next `count` requests whose method is in `methods` (empty: any) and whose path starts with `path_prefix`."""

    count: int
    status: int = 500
    retry_after_s: int = 0
    methods: list[str] = []
    path_prefix: str = ""

    def hits(self, method: str, path: str) -> bool:
        """Whether a request is one of those that are meant."""
        return (not self.methods or method in self.methods) and path.startswith(self.path_prefix)


class Disturbance(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What disturbs the server now.

    `latency_ms` delays every request until it is set back to 0. `drop_watches` ends all watches once, `expire_watches` also makes
    every earlier revision and continue token answer 410: both act when they are put, and read back as false.
    """

    latency_ms: int = 0
    fail_next: FailNext | None = None
    drop_watches: bool = False
    expire_watches: bool = False

    def check(self) -> None:
        """Raises ApiError: 400, a value that makes no sense."""
        if self.latency_ms < 0 or (self.fail_next and (self.fail_next.status not in _MESSAGES or self.fail_next.count < 0)):
            raise errors.bad_request(f"latency_ms and count must not be negative; status is one of {sorted(_MESSAGES)}")

    async def before(self, method: str, path: str) -> None:
        """Waits and refuses as asked.

        Raises:
            ApiError: the refusal.
        """
        if self.latency_ms:
            await asyncio.sleep(self.latency_ms / 1000)
        fault = self.fail_next
        if (
            fault is None
            or not fault.count
            or (fault.methods and method not in fault.methods)
            or not path.startswith(fault.path_prefix)
        ):
            return
        fault.count -= 1
        reason, message = _MESSAGES[fault.status]
        headers = {"Retry-After": str(fault.retry_after_s)} if fault.retry_after_s else {}
        details = {"retryAfterSeconds": fault.retry_after_s} if fault.retry_after_s else None
        raise errors.ApiError(fault.status, reason, message, details=details, headers=headers)
