"""Requests to a Kubernetes API server: authentication, retries, and translation of errors.

Nothing heavy is imported before the first request, and tenacity not before the first failure: each step is a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import bounded_answers, request_retries
from steps.clients.bounded_answers import ReadLimits
from steps.clients.kube import kubeconfig
from steps.contract.canonical import UNREADABLE_JSON
from steps.errors import Refused, StepError, Unreachable

if TYPE_CHECKING:
    import tenacity
    import urllib3

FIELD_MANAGER = "bringup"
_RETRIED = {429, 500, 502, 503, 504}
_MOST_ERROR = 1 << 20
_MESSAGE = 2000
"""Letters of a server's message that an error shows."""
CONNECTIONS = 4
"""Connections that a client keeps open, for as many requests at a time."""


class _ApiStatus(Struct, frozen=True, kw_only=True):
    """The fields of a Kubernetes `Status` that say what went wrong."""

    message: str = ""
    reason: str = ""


class ApiError(StepError):
    """Raised if the API server refused a request for good. `status` is the HTTP status, `reason` the word of Kubernetes for it."""

    def __init__(self, message: str, status: int, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class _ServerBusy(Unreachable):
    """Raised if the API server asks to retry later."""

    def __init__(self, message: str, wait: float) -> None:
        super().__init__(message, hint="the API server is starting or overloaded; the engine tries again")
        self.wait = wait


class Http:
    """HTTP client of one API server with persistent connections. Several threads must not use it at once for one request.

    `who` (`STAGE.TASK`) follows bringup's name in the API server's audit log.
    """

    def __init__(self, access: kubeconfig.Access, who: str = "", limits: ReadLimits = ReadLimits()) -> None:
        import urllib3

        self._limits = limits
        self._server = access.server
        headers = {"Accept": "application/json", "User-Agent": f"{FIELD_MANAGER} {who}".rstrip()}
        if access.token:
            headers["Authorization"] = f"Bearer {access.token}"
        timeout = urllib3.Timeout(connect=timeouts.API_CONNECT, read=timeouts.API_READ)
        self._pool = urllib3.PoolManager(
            4,
            headers=headers,
            timeout=timeout,
            retries=False,
            maxsize=CONNECTIONS,
            ssl_context=kubeconfig.tls_context(access),
        )
        self._pool.pool_classes_by_scheme = bounded_answers.pool_classes(limits.answer_seconds)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: dict[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> bytes:
        """Return the body of a successful answer, after retries.

        Raises ApiError (4xx), Refused (401, 403) or Unreachable after the last try.
        """
        data = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)

        def once() -> bytes:
            return self._once(method, path, query, data, content_type)

        try:
            return once()
        except Unreachable as error:
            # POST as well: its caller must expect 409 for the object that a lost answer was about
            return _again(once, error, self._limits.tries)

    def text(self, path: str) -> str | None:
        """Return the text of one GET without retries, whatever the status; None on 404. Raises Unreachable or Refused."""
        import urllib3

        try:
            answer = self._pool.request("GET", self._server + path, preload_content=False)
            data = self._read(answer, f"GET {path}")
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"GET {path}: {_cause(error)}", hint=f"is {self._server} up and reachable from here?") from error
        if answer.status in (401, 403):
            raise _error(f"GET {path}", answer, data)
        return None if answer.status == 404 else data.decode(errors="replace")

    def glance(self, path: str, query: dict[str, str], seconds: float) -> bytes | None:
        """Return the body of one GET within `seconds`, without retries; None on any failure. For data that can be missing.

        Raises Refused for 401 and 403.
        """
        import urllib3

        try:
            answer = self._pool.request("GET", self._server + path, fields=query, timeout=seconds, preload_content=False)
            data = self._read(answer, f"GET {path}", seconds)
        except (urllib3.exceptions.HTTPError, Unreachable, bounded_answers.AnswerTooLarge):
            return None
        if answer.status in (401, 403):
            raise _error(f"GET {path}", answer, data)
        return data if answer.status < 300 else None

    def _once(self, method: str, path: str, query: dict[str, str] | None, data: bytes | None, content_type: str) -> bytes:
        import urllib3

        url = self._server + path
        headers = {**self._pool.headers, "Content-Type": content_type} if data is not None else None
        try:
            # urllib3 encodes `fields` of these methods into the body
            if query and method in ("POST", "PATCH", "PUT"):
                from urllib.parse import urlencode

                url = f"{url}?{urlencode(query)}"
                query = None
            answer = self._pool.request(method, url, fields=query, body=data, headers=headers, preload_content=False)
            content = self._read(answer, f"{method} {path}")
        except urllib3.exceptions.HTTPError as error:
            raise Unreachable(f"{method} {path}: {_cause(error)}", hint=f"is {self._server} up and reachable from here?") from error
        if answer.status < 300:
            return content
        raise _error(f"{method} {path}", answer, content)

    def _read(self, answer: urllib3.BaseHTTPResponse, what: str, seconds: float | None = None) -> bytes:
        most_bytes = self._limits.answer_bytes if answer.status < 300 else min(_MOST_ERROR, self._limits.answer_bytes)
        deadline = time.monotonic() + (self._limits.answer_seconds if seconds is None else seconds)
        return bounded_answers.read(answer, what, most_bytes=most_bytes, deadline=deadline)


def _again(call: Callable[[], bytes], first: Unreachable, tries: int) -> bytes:
    """Retry a call whose first try failed with `first`; return its result or raise its last error."""
    import tenacity

    stop = tenacity.stop_after_attempt(tries) | tenacity.stop_after_delay(timeouts.API_REQUEST)
    return request_retries.after_failure(call, first, stop=stop, wait=_wait)


def _wait(state: tenacity.RetryCallState) -> float:
    import tenacity

    grown = tenacity.wait_exponential(timeouts.API_BACKOFF_FIRST, max=timeouts.API_BACKOFF_MAX)(state)
    error = state.outcome.exception() if state.outcome else None
    return max(grown, error.wait) if isinstance(error, _ServerBusy) else grown


def _cause(error: BaseException) -> str:
    reason = getattr(error, "reason", None)
    return str(reason if reason is not None else error)


def _error(what: str, answer: urllib3.BaseHTTPResponse, content: bytes) -> StepError:
    try:
        status = msgspec.json.decode(content, type=_ApiStatus)
    except UNREADABLE_JSON:
        status = _ApiStatus(message=content[:200].decode(errors="replace"))
    message = f"{what}: {answer.status} {status.reason[:_MESSAGE]}: {status.message[:_MESSAGE]}"
    if answer.status in _RETRIED:
        return _ServerBusy(message, _seconds(answer.headers.get("Retry-After", "0")))
    if answer.status in (401, 403):
        return Refused(message, hint="check the service account's role and that the kubeconfig belongs to this cluster")
    return ApiError(message, answer.status, status.reason)


def _seconds(text: str) -> float:
    # limited, so that one answer cannot use up the step's time; the header may also be a date, which is ignored
    return min(float(text), timeouts.API_READ) if text.isdigit() else 0.0
