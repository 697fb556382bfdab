"""The read-only part of a Kubernetes client as a protocol, so that probes do not depend on a client."""

from typing import Any, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Scope(Struct, frozen=True, kw_only=True):
    """The nodes, arguments and times of one observation, which a verb passes to a probe.

    `nodes` are the names of the nodes expected now (fleet minus quarantine), `arguments` the task's own arguments. `now` is the
    target's clock in seconds since the epoch (simulated time in a rehearsal). `since` is when the objects of a check were created,
    by the same clock; 0 if there are none. Creation timestamps of objects come from the API server's clock. `commit` is the commit
    delivered for the revision of the stage's root Application; empty if there is no root or the commit is unknown. `trusted` maps a
    ConfigMap to digests of the host keys and certificates that it must contain.
    """

    nodes: tuple[str, ...] = ()
    arguments: dict[str, Any] = {}
    now: float = 0.0
    since: float = 0.0
    commit: str = ""
    trusted: dict[str, tuple[str, ...]] = {}


class KubeReader(Protocol):
    """Read access to the target cluster. Reads raise `Temporary` for errors that may pass, `Refused` for a missing right (403)."""

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return one object by its API path, decoded into `kind`; None if it does not exist."""

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        """Return all objects of a collection (in pages of 500), decoded into `kind`; None if the API does not serve it."""

    def text(self, path: str) -> str | None:
        """Return the body of a GET that is not JSON (`/readyz?verbose`); None on 404. The body of a 500 names the failed check."""

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        """Return the last lines of a pod's log; empty if there is none. `previous` reads the container before the last restart."""

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        """Return the events of one object as `Reason: message` lines, oldest first."""


class AccessQuestion(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request as an authorizer sees it: who makes it, and what it does.

    `subresource` is `log` for `pods/log`; an empty `namespace` is cluster-wide.
    """

    user: str
    verb: str
    resource: str
    groups: tuple[str, ...] = ()
    namespace: str = ""
    api_group: str = ""
    subresource: str = ""


class AccessReader(KubeReader, Protocol):
    """Read access to the target cluster, with questions to its authorizer."""

    def may(self, access: AccessQuestion) -> bool:
        """Return True if the API server's authorizer allows a request (SubjectAccessReview), which is not carried out."""
