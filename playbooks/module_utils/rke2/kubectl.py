"""kubectl on an RKE2 server: reads, drains, uncordons and removes Nodes, with one sentence for each Node that refuses."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterable, Iterator
from urllib.parse import quote

KUBECTL = "/var/lib/rancher/rke2/bin/kubectl"
KUBECONFIG = "/etc/rancher/rke2/rke2.yaml"
MARK = "bringup/drained-for"
"""Annotation of a Node that we cordoned. A cordoned Node without it was cordoned by somebody else and stays so."""

AT_ONCE = 10
"""Number of kubectl processes that run at once; each takes 50 MB."""

PAGE = 100
"""Number of Nodes in one response when all are read; a Node is 20 kB."""

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
DRAIN = ["--ignore-daemonsets", "--delete-emptydir-data", "--force"]
"""Options of `kubectl drain`: ignore pods of DaemonSets, delete scratch volumes, and evict pods without an owner."""

OUT_OF_TIME = "timeout reached"
"""kubectl's message for a drain that ran out of time. Only a drain with this message is worth a retry."""


class KubectlError(Exception):
    """Error: kubectl failed or cannot be started; the text is its own message."""


class Kubectl:
    """kubectl with the server's own admin kubeconfig; each method runs one command."""

    @staticmethod
    def is_here() -> bool:
        """Return True if this host has RKE2's kubectl and admin kubeconfig, as a server has."""
        return os.path.exists(KUBECTL) and os.path.exists(KUBECONFIG)

    def run(self, *words: str, timeout: int = 30) -> str:
        """Return the standard output of one kubectl command; `timeout` is in seconds a request, 0 for none. Raises KubectlError."""
        command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--request-timeout=%ds" % timeout, *words]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            raise KubectlError("%s: %s" % (KUBECTL, error.strerror)) from error
        if done.returncode != 0:
            raise KubectlError((done.stderr.strip() or done.stdout.strip())[-400:])
        return done.stdout

    def nodes(self, names: list) -> dict:
        """Return name → facts (see `facts`) of the named Nodes that are registered. Raises KubectlError."""
        if not names:
            return {}
        output = self.run("get", "nodes", *names, "--ignore-not-found", "--output=json")
        return {node["metadata"]["name"]: facts(node) for node in _items(output)}

    def servers(self) -> dict:
        """Return name → facts (see `facts`) of every server of the cluster. Raises KubectlError."""
        output = self.run("get", "nodes", "--selector=" + CONTROL_PLANE, "--output=json")
        return {node["metadata"]["name"]: facts(node) for node in _items(output)}

    def versions(self) -> dict:
        """Return name → kubelet version of every Node. Raises KubectlError."""
        columns = "--output=custom-columns=NAME:.metadata.name,VERSION:.status.nodeInfo.kubeletVersion"
        lines = self.run("get", "nodes", "--no-headers", columns, timeout=120).splitlines()
        return dict(line.split()[:2] for line in lines if len(line.split()) > 1)

    def pages(self) -> Iterator:
        """Yield all Nodes in lists of at most PAGE objects, each list read when the caller asks for it. Raises KubectlError."""
        more = ""
        while True:
            page = json.loads(self.run("get", "--raw", "/api/v1/nodes?limit=%d%s" % (PAGE, more)))
            yield page.get("items", [])
            token = page.get("metadata", {}).get("continue", "")
            if not token:
                return
            more = "&continue=" + quote(token, safe="")

    def cordon(self, name: str, mark: str) -> None:
        """Annotate a Node with MARK and the reason `mark`, then cordon it. Raises KubectlError."""
        # first the mark: a Node that was only cordoned when this run is killed would stay so, as somebody else's
        self.run("annotate", "node", name, "%s=%s" % (MARK, mark), "--overwrite")
        self.run("cordon", name)

    def drain(self, name: str, seconds: int) -> None:
        """Evict the pods of a Node within their grace periods and disruption budgets, for at most `seconds`.

        Raises KubectlError.
        """
        # a drain asks many times: a limit on one request would not bound it, so it has one of its own
        self.run("drain", name, *DRAIN, "--timeout=%ds" % seconds, timeout=0)

    def free(self, name: str) -> None:
        """Uncordon a Node and remove MARK from it. Raises KubectlError."""
        # the mark goes last, for the same reason
        self.run("uncordon", name)
        self.run("annotate", "node", name, MARK + "-")

    def remove(self, name: str) -> None:
        """Delete a Node, upon which RKE2 removes its etcd member and its node password. Raises KubectlError."""
        self.run("delete", "node", name, "--ignore-not-found", "--timeout=60s", timeout=0)


def drain(kubectl: Kubectl, names: list, mark: str, ours: list, seconds: int) -> dict:
    """Drain several Nodes within `seconds` in all; return name → sentence of the Nodes that were not drained.

    Those also in `ours` are cordoned first, all before the first drain, so that no pod moves from one to the next. If there are
    more Nodes than AT_ONCE, each gets a turn and further turns while time is left, because evicted pods go on ending.
    """
    end = time.monotonic() + seconds
    refused = each([name for name in names if name in ours], lambda name: kubectl.cordon(name, mark))
    waiting = [name for name in names if name not in refused]
    rounds = -(-len(waiting) // AT_ONCE)  # rounded up
    # half of the time for first turns leaves time for a second one
    turn = seconds if rounds < 2 else max(1, seconds // (2 * rounds))

    def one(name: str) -> None:
        kubectl.drain(name, max(1, min(turn, math.ceil(end - time.monotonic()))))

    while waiting:
        refusals = each(waiting, one)
        refused.update(refusals)
        for name in set(waiting) - set(refusals):
            refused.pop(name, None)  # it ran out of time in an earlier turn
        waiting = [name for name in waiting if OUT_OF_TIME in refusals.get(name, "")] if time.monotonic() < end else []
    return refused


def facts(node: dict) -> dict:
    """Return version, states, taints and etcd vote of a Node object.

    `taints` are those that keep pods away, as `key=value:effect`; `voter` is None if the Node has no such condition.
    """
    meta, status = node.get("metadata", {}), node.get("status", {})
    conditions = {condition.get("type"): condition.get("status") for condition in status.get("conditions", [])}
    return {
        "version": status.get("nodeInfo", {}).get("kubeletVersion", ""),
        "ready": conditions.get("Ready") == "True",
        "cordoned": bool(node.get("spec", {}).get("unschedulable")),
        "marked": MARK in (meta.get("annotations") or {}),
        "taints": sorted(
            "%s=%s:%s" % (taint.get("key", ""), taint.get("value", ""), taint["effect"])
            for taint in node.get("spec", {}).get("taints") or []
            if taint.get("effect") in ("NoSchedule", "NoExecute")
        ),
        "server": CONTROL_PLANE in (meta.get("labels") or {}),
        "voter": conditions["EtcdIsVoter"] == "True" if "EtcdIsVoter" in conditions else None,
    }


def each(names: list, act: Callable[[str], None]) -> dict:
    """Call `act` for many Nodes in parallel; return name → message of each KubectlError."""

    def one(name: str) -> str:
        try:
            act(name)
        except KubectlError as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        sentences = list(pool.map(one, names))
    return {name: text for name, text in zip(names, sentences) if text}


def majority_refusal(servers: dict, leaving: str) -> str:
    """Return why etcd would lose its majority if server `leaving` stopped now; empty if it would not, or is a single member."""
    members = {name: seen for name, seen in servers.items() if seen["voter"] is not None}
    if len(members) < 2:
        return ""
    healthy = sorted(name for name, seen in members.items() if seen["voter"] and seen["ready"] and name != leaving)
    needed = len(members) // 2 + 1
    if len(healthy) >= needed:
        return ""
    message = "etcd needs %d of %d members and would have %d without %s (%s): bring the other servers back first"
    return message % (needed, len(members), len(healthy), leaving, ", ".join(healthy) or "none")


def _items(text: str) -> list:
    """Return the objects in kubectl's JSON output: of a list, a single object, or none."""
    if not text.strip():
        return []
    parsed = json.loads(text)
    return parsed.get("items", [parsed])


STATE_TAINT = "node.kubernetes.io/"
"""Prefix of the taints that Kubernetes sets by a Node's state. Pods on a Node do not run there because they tolerate these."""
CORDON_TAINT = STATE_TAINT + "unschedulable="
"""Taint that Kubernetes sets on a cordoned Node; the Node's field `unschedulable` says the same."""


def stranded_nodes(nodes: dict, pages: Iterable) -> list:
    """Return the sorted names of those Nodes (name → facts) whose pods fit on no other Node. `pages` yields all Nodes.

    Draining such a Node does no good: evicted pods wait for the Node itself, and a budget that needs a running pod is never met
    again. RKE2 can restart in place with its containers running. Nodes drained together count for each other, as they return one
    after the other.
    """
    left = set(nodes)
    for page in pages:
        others = {node["metadata"]["name"]: facts(node) for node in page}
        for name in sorted(left):
            if any(other != name and _takes_pods(seen, nodes[name], other in nodes) for other, seen in others.items()):
                left.remove(name)
        if not left:
            break
    return sorted(left)


def _takes_pods(other: dict, leaving: dict, drained_too: bool) -> bool:
    """Return True if a ready Node accepts new pods and has no taint that pods of the leaving Node may not tolerate."""
    if not other["ready"] or (other["cordoned"] and not drained_too):
        return False
    tolerated = {taint for taint in leaving["taints"] if not taint.startswith(STATE_TAINT)}
    return {taint for taint in other["taints"] if not taint.startswith(CORDON_TAINT)} <= tolerated
