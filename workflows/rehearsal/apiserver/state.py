"""The emulated cluster's state and the parts that work on it, put together."""

from workflows.rehearsal.apiserver.asked import Asked
from workflows.rehearsal.apiserver.conform import Write
from workflows.rehearsal.apiserver.definitions import Definitions
from workflows.rehearsal.apiserver.disturbance import Disturbance
from workflows.rehearsal.apiserver.lifecycle import Lifecycle
from workflows.rehearsal.apiserver.listing import Lists
from workflows.rehearsal.apiserver.podlogs import PodLogs
from workflows.rehearsal.apiserver.resources import Resources
from workflows.rehearsal.apiserver.store import Store

FIRST_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
FIRST_PRIORITIES = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


class State:
    """One cluster. A fresh one has what kube-apiserver itself makes: four namespaces (the uid of `kube-system` is the cluster's
    identity) and two priority classes.
    """

    def __init__(self) -> None:
        self.resources = Resources()
        self.store = Store()
        self.lifecycle = Lifecycle(self.store, self.resources)
        self.definitions = Definitions(self.store, self.resources, self.lifecycle)
        self.lists = Lists(self.store)
        self.logs = PodLogs()
        self.store.listen(self.logs.on_change)
        self.disturbance = Disturbance()
        self.asked: set[Asked] = set()
        namespaces = self.resources.core("namespaces")
        for name in FIRST_NAMESPACES:
            self.lifecycle.create(namespaces, "", {"metadata": {"name": name}}, Write("apiserver"))
        classes = self.resources.find("scheduling.k8s.io", "v1", "priorityclasses")
        for name, value in FIRST_PRIORITIES.items():
            self.lifecycle.create(classes, "", {"metadata": {"name": name}, "value": value}, Write("apiserver"))
        for _, table in self.store.tables():
            table.log.compact(self.store.revision)

    def disturb(self, disturbance: Disturbance) -> None:
        """Starts a disturbance in place of the current one."""
        for _, table in self.store.tables():
            if disturbance.expire_watches:
                table.log.expire(self.store.revision)
            elif disturbance.drop_watches:
                table.log.close()
        if disturbance.expire_watches:
            self.lists.expire()
        self.disturbance = Disturbance(latency_ms=disturbance.latency_ms, fail_next=disturbance.fail_next)
