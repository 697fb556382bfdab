"""What the quarantine commands share: who is set aside in a run, what an earlier run left so, and how a node is released."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from steps.clients.store import Store
from steps.contract import run as contract
from workflows.engines import release as releasing
from workflows.engines.folders import Home, NoHome, RunFolder
from workflows.engines.release import KUBECONFIG, Aside


def listed(home: Home, run: str) -> tuple[Aside, ...]:
    """All nodes that a run set aside, by name, as this machine's store has them."""
    return releasing.listed(Store(home.store), run)


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
    """Release nodes of a run of this machine. Raises CannotRelease, and what the client raises."""
    yield from releasing.release(Store(folder.home.store), folder.name, _kubeconfigs(folder), nodes, who)


def _kubeconfigs(folder: RunFolder) -> tuple[Path, Path]:
    """What the run wrote itself, then what the spec named."""
    return folder.stored / "secrets" / KUBECONFIG, folder.inputs / "secrets" / KUBECONFIG


def plain(rows: Iterable[Aside]) -> list[dict[str, str]]:
    """The list as data for scripts."""
    return [dict(msgspec.structs.asdict(one)) for one in rows]
