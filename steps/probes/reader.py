"""What a probe may ask of a cluster: the reading half of a Kubernetes client, as a protocol, so that probes see no client."""

from typing import Any, Protocol, TypeVar

from msgspec import Struct

T = TypeVar("T")


class Scope(Struct, frozen=True, kw_only=True):
    """What one observation is about.

    `nodes` are the names of the nodes that are expected now (fleet minus quarantine), `arguments` the task's own
    arguments, `now` the target's clock in seconds since the epoch (simulated time in a rehearsal), `since` when the objects of a
    check were created, by the same clock (0 where there are none): creation time stamps are the API server's, another clock.
    `commit` is what was delivered for the revision of the stage's root Application; empty where there is none, or nobody knows.
    `trusted` are digests of the host keys and certificates that files of the site name, by the ConfigMap which must have them.
    """

    nodes: tuple[str, ...] = ()
    arguments: dict[str, Any] = {}
    now: float = 0.0
    since: float = 0.0
    commit: str = ""
    trusted: dict[str, tuple[str, ...]] = {}


class KubeReader(Protocol):
    """Reads of the target cluster. Errors that may pass raise `Temporary`; a refusal (403) raises `Refused`."""

    def get(self, path: str, kind: type[T]) -> T | None:
        """One object by its API path, decoded into `kind`; None when it does not exist."""

    def list(self, path: str, kind: type[T], labels: str = "", fields: str = "") -> tuple[T, ...] | None:
        """All objects of a collection (paged by 500), decoded into `kind`; None when the API does not serve it."""

    def text(self, path: str) -> str | None:
        """The body of a GET that is no JSON (`/readyz?verbose`), also of a 500, which says there what is not ready; None on 404."""

    def log(self, namespace: str, pod: str, container: str = "", tail: int = 200, previous: bool = False) -> str:
        """The last lines of a pod's log (`previous`: of its container before the last restart); empty when there is none."""

    def events(self, namespace: str, name: str) -> tuple[str, ...]:
        """Events about one object as `Reason: message` lines, oldest first."""
