"""The state of one emulated cluster: objects, served resources, container logs and the disturbance in force."""

import asyncio

import msgspec

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.container_logs import PodLogs
from workflows.rehearsal.apiserver.crd_registry import CrdRegistry
from workflows.rehearsal.apiserver.lifecycle import Lifecycle, WriteOptions
from workflows.rehearsal.apiserver.listing import ListSnapshots
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.routing import RequestKind
from workflows.rehearsal.apiserver.served_resources import ResourceTable

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
    """A disturbance of the API server that refuses the next `count` requests with HTTP status `status`.

    `methods` limits it to some HTTP methods (empty: all), `path_prefix` to paths that start with it. If `retry_after_s` is not 0,
    the answer asks the client to retry after that time.
    """

    count: int
    status: int = 500
    retry_after_s: int = 0
    methods: list[str] = []
    path_prefix: str = ""

    def hits(self, method: str, path: str) -> bool:
        """Return True if requests with this HTTP method and path are to be refused."""
        return (not self.methods or method in self.methods) and path.startswith(self.path_prefix)


class ApiDisturbance(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A disturbance of the API server, as `PUT /emulation/disturbance` sets it.

    `latency_ms` delays every request until it is set back to 0; `fail_next` refuses some requests. `drop_watches` ends all watches.
    `expire_watches` does so too, and makes every earlier revision and continue token answer 410. Both act once when they are set,
    and read back as false.
    """

    latency_ms: int = 0
    fail_next: FailNext | None = None
    drop_watches: bool = False
    expire_watches: bool = False

    def check(self) -> None:
        """Raise StatusError (400) for a negative latency or count, or for a status that the server cannot produce."""
        if self.latency_ms < 0 or (self.fail_next and (self.fail_next.status not in _MESSAGES or self.fail_next.count < 0)):
            raise errors.bad_request(f"latency_ms and count must not be negative; status is one of {sorted(_MESSAGES)}")

    async def before(self, method: str, path: str) -> None:
        """Wait for `latency_ms`, then raise StatusError if `fail_next` refuses a request with this method and path."""
        if self.latency_ms:
            await asyncio.sleep(self.latency_ms / 1000)
        fault = self.fail_next
        if fault is None or not fault.count or not fault.hits(method, path):
            return
        fault.count -= 1
        reason, message = _MESSAGES[fault.status]
        raise errors.try_later(fault.status, reason, message, fault.retry_after_s)


FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FIRST_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class KubeletEndpoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The program that plays the kubelets of all nodes: URL and bearer token of its control API."""

    url: str
    token: str


class ClusterState:
    """All state of one emulated cluster, and the objects that change it.

    A new one has what kube-apiserver itself creates: four namespaces and two priority classes. The uid of the namespace
    `kube-system` is the cluster's identity.
    """

    def __init__(self) -> None:
        self.resources = ResourceTable()
        self.store = ObjectStore()
        self.lifecycle = Lifecycle(self.store, self.resources)
        self.definitions = CrdRegistry(self.store, self.resources, self.lifecycle)
        self.lists = ListSnapshots(self.store)
        self.logs = PodLogs()
        self.store.listen(self.logs.on_change)
        self.disturbance = ApiDisturbance()
        self.requests: set[RequestKind] = set()
        self.kubelet: KubeletEndpoint | None = None
        namespaces = self.resources.core("namespaces")
        for name in FIRST_NAMESPACES:
            self.lifecycle.create(namespaces, "", {"metadata": {"name": name}}, WriteOptions("apiserver"))
        classes = self.resources.find("scheduling.k8s.io", "v1", "priorityclasses")
        for name, value in FIRST_PRIORITIES.items():
            self.lifecycle.create(classes, "", {"metadata": {"name": name}, "value": value}, WriteOptions("apiserver"))
        for _, table in self.store.tables():
            table.log.compact(self.store.revision)

    def disturb(self, disturbance: ApiDisturbance) -> None:
        """Put a disturbance in force in place of the present one, and end watches if it says so."""
        for _, table in self.store.tables():
            if disturbance.expire_watches:
                table.log.expire(self.store.revision)
            elif disturbance.drop_watches:
                table.log.close()
        if disturbance.expire_watches:
            self.lists.expire()
        self.disturbance = ApiDisturbance(latency_ms=disturbance.latency_ms, fail_next=disturbance.fail_next)
