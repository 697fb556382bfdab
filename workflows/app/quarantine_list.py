"""Shared code of the quarantine commands: list the nodes that a run quarantined, remind of unreleased ones, release them."""

from collections.abc import Iterable, Iterator

from steps.clients.store import Store
from steps.contract import run_records
from workflows.engines import node_release
from workflows.engines.folders import NoStateFolder, RunFolder, StateFolder
from workflows.engines.node_release import KUBECONFIG, QuarantinedNode


def listed(home: StateFolder, run: str) -> tuple[QuarantinedNode, ...]:
    """Return all nodes that a run quarantined, sorted by name, as this machine's store records them."""
    return node_release.quarantined_nodes(Store(home.store), run)


def reminder(cluster: str, hosts: Iterable[str]) -> list[str]:
    """Return a line for each of these hosts that the cluster's last real run quarantined and nobody has released since."""
    try:
        home = StateFolder.of_environment()
    except NoStateFolder:
        return []
    store, known = Store(home.store), frozenset(hosts)
    last = next((name for name in reversed(home.runs()) if _is_real(store, name, cluster)), "")
    nodes = [node for node in listed(home, last) if node.node in known and not node.released] if last else []
    return [f"{node.node} was set aside by run {last} in {node.stage} and is not released: {node.reason}" for node in nodes]


def _is_real(store: Store, run: str, cluster: str) -> bool:
    data = store.read(run_records.header_key(run))
    header = run_records.decode_header(data) if data else None
    return header is not None and header.cluster == cluster and not header.simulated


def release(folder: RunFolder, nodes: Iterable[str], who: str) -> Iterator[str]:
    """Release quarantined nodes of a local run, and yield a line for each.

    Raises CannotRelease, and the Kubernetes client's errors.
    """
    # first the kubeconfig that the run wrote itself, then the one that the spec named
    kubeconfigs = folder.stored / "secrets" / KUBECONFIG, folder.inputs / "secrets" / KUBECONFIG
    yield from node_release.release(Store(folder.home.store), folder.name, kubeconfigs, nodes, who)
