"""Calls to the two processes of a simulated cluster: its API server's emulation paths, and its simulator's control API."""

from collections.abc import Collection, Sequence

import msgspec
import urllib3

from workflows.rehearsal.processes import SimulatedCluster

CALL_SECONDS = 120.0
"""Restoring a thousand nodes takes a second; two minutes means that a process hangs."""


def call(method: str, url: str, token: str, body: bytes | None = None) -> bytes:
    """One request; the answer's body. Raises RuntimeError for an answer that is none."""
    with urllib3.PoolManager(1, retries=False, timeout=CALL_SECONDS) as http:
        answer = http.request(method, url, body=body, headers={"Authorization": f"Bearer {token}"})
    if answer.status >= 300:
        raise RuntimeError(f"{method} {url}: {answer.status}: {answer.data[:300].decode(errors='replace')}")
    return answer.data


def exchange(cluster: SimulatedCluster, hosts: Collection[str]) -> None:
    """Put new, bare machines in the place of these hosts."""
    state = msgspec.json.decode(call("GET", cluster.url + "/state", cluster.token))
    kept = {name: shown for name, shown in state["hosts"].items() if name not in hosts}
    call("PUT", cluster.url + "/state", cluster.token, msgspec.json.encode({**state, "hosts": kept}))


def disturb(cluster: SimulatedCluster, faults: Sequence[str]) -> None:
    """Put these faults (NAME or NAME:NODE,…), and no others, in force from now on."""
    wanted = [dict(zip(("name", "node"), fault.partition(":")[::2], strict=True)) for fault in faults]
    call("PUT", cluster.url + "/faults", cluster.token, msgspec.json.encode(wanted))
