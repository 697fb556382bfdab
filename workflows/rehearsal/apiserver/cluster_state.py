"""The state of the emulated cluster: the object store and the parts that work on it."""

from workflows.rehearsal.apiserver.container_logs import PodLogs
from workflows.rehearsal.apiserver.crd_registry import CrdRegistry
from workflows.rehearsal.apiserver.disturbance import ApiDisturbance
from workflows.rehearsal.apiserver.lifecycle import Lifecycle
from workflows.rehearsal.apiserver.listing import ListSnapshots
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.routing import RequestKind
from workflows.rehearsal.apiserver.served_resources import ResourceTable
from workflows.rehearsal.apiserver.write_pipeline import WriteOptions

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FIRST_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class ClusterState:
    """The state of one emulated cluster.

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
        namespaces = self.resources.core("namespaces")
        for name in FIRST_NAMESPACES:
            self.lifecycle.create(namespaces, "", {"metadata": {"name": name}}, WriteOptions("apiserver"))
        classes = self.resources.find("scheduling.k8s.io", "v1", "priorityclasses")
        for name, value in FIRST_PRIORITIES.items():
            self.lifecycle.create(classes, "", {"metadata": {"name": name}, "value": value}, WriteOptions("apiserver"))
        for _, table in self.store.tables():
            table.log.compact(self.store.revision)

    def disturb(self, disturbance: ApiDisturbance) -> None:
        """Replace the present disturbance."""
        for _, table in self.store.tables():
            if disturbance.expire_watches:
                table.log.expire(self.store.revision)
            elif disturbance.drop_watches:
                table.log.close()
        if disturbance.expire_watches:
            self.lists.expire()
        self.disturbance = ApiDisturbance(latency_ms=disturbance.latency_ms, fail_next=disturbance.fail_next)
