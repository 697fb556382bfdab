"""What the quarantine commands share: who is set aside in a run, what an earlier run left so, and how a node is released."""

import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct

from steps.clients.kube import Kube
from steps.clients.store import Store
from steps.contract import approval, quarantine
from steps.contract import run as contract
from steps.contract.canonical import canonical
from steps.contract.exit import ExitCode
from workflows.engines.folders import Home, NoHome, RunFolder

KUBECONFIG = "kubeconfig"


class CannotRelease(ValueError):
    """A node that cannot be released; the message says why. Nothing was changed."""

    exit_code = ExitCode.USAGE

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Meta(Struct, frozen=True):
    """Identity and annotations of an object."""

    uid: str = ""
    annotations: dict[str, str] = {}


class Named(Struct, frozen=True):
    """A Node or the namespace kube-system."""

    metadata: Meta = Meta()


class Aside(Struct, frozen=True, kw_only=True):
    """One node that a run set aside; `released` says by whom and when, empty while it is not."""

    node: str
    stage: str
    reason: str
    released: str = ""


def listed(home: Home, run: str) -> tuple[Aside, ...]:
    """All nodes that a run set aside, by name."""
    store = Store(home.store)
    found = quarantine.entries(store.keys(quarantine.folder(run)), store.read)
    return tuple(
        Aside(node=entry.node, stage=entry.stage, reason=entry.reason, released=_released(store, run, entry.node))
        for entry in found
    )


def _released(store: Store, run: str, node: str) -> str:
    data = store.read(quarantine.release_key(run, node))
    if data is None:
        return ""
    known = quarantine.decode_release(data)
    return f"{known.who} at {time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime(known.when))} UTC"


# ---- what an earlier run left ---------------------------------------------------------------------------------------------------


def reminder(cluster: str, hosts: Iterable[str]) -> list[str]:
    """A line for each of these hosts that the last real run of a cluster set aside and nobody released since."""
    try:
        home = Home.of_environment()
    except NoHome:
        return []
    store, known = Store(home.store), frozenset(hosts)
    last = next((name for name in reversed(home.runs()) if _is_real(store, name, cluster)), "")
    left = [one for one in listed(home, last) if one.node in known and not one.released] if last else []
    return [f"{one.node} was set aside by run {last} in {one.stage} and is not released: {one.reason}" for one in left]


def _is_real(store: Store, run: str, cluster: str) -> bool:
    data = store.read(contract.header_key(run))
    header = contract.decode_header(data) if data else None
    return header is not None and header.cluster == cluster and not header.simulated


# ---- release -------------------------------------------------------------------------------------------------------------------


def release(folder: RunFolder, nodes: Iterable[str], who: str) -> Iterator[str]:
    """Release nodes of a run: take our cordon off in its cluster, then store who did it and when. Yields a line for each node.

    Raises CannotRelease before anything is changed, and what the client raises where the cluster does not answer.
    """
    if not approval.is_name(who):
        raise CannotRelease("a release needs a name", "give it with --as NAME; it becomes evidence")
    wanted, store = tuple(dict.fromkeys(nodes)), Store(folder.home.store)
    known = {one.node: one for one in listed(folder.home, folder.name)}
    for node in wanted:
        _check(folder.name, node, known)
    kube = _cluster(folder, store)
    for node in wanted:
        uncordoned = kube is not None and _uncordon(kube, node)
        one = known[node]
        made = quarantine.Release(
            run=folder.name, node=node, stage=one.stage, reason=one.reason, who=who, when=time.time(), uncordoned=uncordoned
        )
        store.write(quarantine.release_key(folder.name, node), canonical(made))
        yield f"released {node} as {who}{', uncordoned' if uncordoned else ''}: it takes part again in the next run"


def _check(run: str, node: str, known: Mapping[str, Aside]) -> None:
    one = known.get(node)
    if one is None:
        left = ", ".join(name for name, other in known.items() if not other.released)
        raise CannotRelease(f"{node} is not quarantined in run {run}", f"quarantined there: {left or 'nobody'}")
    if one.released:
        raise CannotRelease(f"{node} of run {run} was released by {one.released}")


def _cluster(folder: RunFolder, store: Store) -> Kube | None:
    """The cluster of a run, by its own kubeconfig; None for a rehearsal, whose cluster is gone, and where a run never had one."""
    header = store.read(contract.header_key(folder.name))
    path = next((path for path in _kubeconfigs(folder) if path.exists()), None)
    if path is None or (header is not None and contract.decode_header(header).simulated):
        return None
    kube = Kube.from_file(path)
    found = kube.get("/api/v1/namespaces/kube-system", Named)
    uid, wanted = found.metadata.uid if found else "", contract.target_uid(folder.name, store.read)
    if not uid or (wanted and uid != wanted):
        said = f"the kubeconfig of run {folder.name} leads to cluster {uid or 'of unknown identity'}"
        raise CannotRelease(f"{said}, the run was about {wanted or 'another'}", "nothing was changed; correct the kubeconfig")
    return kube


def _kubeconfigs(folder: RunFolder) -> tuple[Path, Path]:
    """What the run wrote itself, then what the spec named."""
    return folder.stored / "secrets" / KUBECONFIG, folder.inputs / "secrets" / KUBECONFIG


def _uncordon(kube: Kube, node: str) -> bool:
    """Take off the cordon if it is ours; one without our annotation is somebody else's."""
    path = f"/api/v1/nodes/{node}"
    found = kube.get(path, Named)
    if found is None or quarantine.ANNOTATION not in found.metadata.annotations:
        return False
    kube.merge(path, {"metadata": {"annotations": {quarantine.ANNOTATION: None}}, "spec": {"unschedulable": None}})
    return True


def plain(rows: Iterable[Aside]) -> list[dict[str, str]]:
    """The list as data for scripts."""
    return [dict(msgspec.structs.asdict(one)) for one in rows]
