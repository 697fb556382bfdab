"""kubectl on an RKE2 server: reads nodes, and drains, frees and removes them, one sentence for each that refuses."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Iterator
from urllib.parse import quote

KUBECTL = "/var/lib/rancher/rke2/bin/kubectl"
KUBECONFIG = "/etc/rancher/rke2/rke2.yaml"
MARK = "bringup/drained-for"
"""Annotation of a node that we cordoned; a cordon without it is somebody else's, and stays."""

AT_ONCE = 10
"""kubectl processes side by side: each takes 50 MB."""

PAGE = 100
"""Nodes of one answer where all are looked through: a Node is 20 kB."""

CONTROL_PLANE = "node-role.kubernetes.io/control-plane"
DRAIN = ["--ignore-daemonsets", "--delete-emptydir-data", "--force"]
"""What a drain must take away too: pods of DaemonSets stay, scratch space goes, and so do pods that nobody owns."""

OUT_OF_TIME = "timeout reached"
"""What kubectl says of a drain that was not done in its time; any other refusal would be the same again."""


class Refused(Exception):
    """kubectl said no; the text is its own."""


class Kube:
    """kubectl with the server's own admin kubeconfig."""

    @staticmethod
    def is_here() -> bool:
        """Whether this host is a server that has written its kubeconfig."""
        return os.path.exists(KUBECTL) and os.path.exists(KUBECONFIG)

    def run(self, *words: str, timeout: int = 30) -> str:
        """Standard output of one command. Raises Refused."""
        command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--request-timeout=%ds" % timeout, *words]
        try:
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        except OSError as error:
            raise Refused("%s: %s" % (KUBECTL, error.strerror)) from error
        if done.returncode != 0:
            raise Refused((done.stderr.strip() or done.stdout.strip())[-400:])
        return done.stdout

    def nodes(self, names: list) -> dict:
        """Name → facts of these nodes; one that is not registered is left out."""
        if not names:
            return {}
        said = self.run("get", "nodes", *names, "--ignore-not-found", "--output=json")
        return {one["metadata"]["name"]: facts(one) for one in _items(said)}

    def servers(self) -> dict:
        """Name → facts of every server of the cluster."""
        said = self.run("get", "nodes", "--selector=" + CONTROL_PLANE, "--output=json")
        return {one["metadata"]["name"]: facts(one) for one in _items(said)}

    def versions(self) -> dict:
        """Name → version of every node's kubelet."""
        columns = "--output=custom-columns=NAME:.metadata.name,VERSION:.status.nodeInfo.kubeletVersion"
        lines = self.run("get", "nodes", "--no-headers", columns, timeout=120).splitlines()
        return dict(line.split()[:2] for line in lines if len(line.split()) > 1)

    def pages(self) -> Iterator:
        """All Nodes, as lists: the next one is read once it is asked for. Raises Refused."""
        more = ""
        while True:
            found = json.loads(self.run("get", "--raw", "/api/v1/nodes?limit=%d%s" % (PAGE, more)))
            yield found.get("items", [])
            token = found.get("metadata", {}).get("continue", "")
            if not token:
                return
            more = "&continue=" + quote(token, safe="")

    def cordon(self, name: str, mark: str) -> None:
        """Keep new work away, with our mark. Raises Refused."""
        self.run("annotate", "node", name, "%s=%s" % (MARK, mark), "--overwrite")
        self.run("cordon", name)

    def drain(self, name: str, seconds: int) -> None:
        """Move the pods away, each within its own grace period and its budget. Raises Refused."""
        # a drain asks many times: a limit on one request would not bound it, so it has one of its own
        self.run("drain", name, *DRAIN, "--timeout=%ds" % seconds, timeout=0)

    def free(self, name: str) -> None:
        """Let work come to a node that we cordoned. Raises Refused."""
        self.run("uncordon", name)
        self.run("annotate", "node", name, MARK + "-")

    def remove(self, name: str) -> None:
        """Delete a Node; RKE2 then removes its etcd member and its node password too (peers §4). Raises Refused."""
        self.run("delete", "node", name, "--ignore-not-found", "--timeout=60s", timeout=0)


def drain(kubectl: Kube, names: list, mark: str, ours: list, seconds: int) -> dict:
    """Move the pods of these nodes away within so many seconds for all of them; name → sentence of those that refused.

    All are cordoned before the first is drained: no pod moves from one to the next. Where they are more than go side by side, each
    has a turn, and another one while there is time: a pod that was told to end goes on ending.
    """
    end = time.monotonic() + seconds
    refused = each([name for name in names if name in ours], lambda name: kubectl.cordon(name, mark))
    waiting = [name for name in names if name not in refused]
    rounds = -(-len(waiting) // AT_ONCE)
    turn = seconds if rounds < 2 else max(1, seconds // (2 * rounds))

    def one(name: str) -> None:
        kubectl.drain(name, max(1, min(turn, math.ceil(end - time.monotonic()))))

    while waiting:
        said = each(waiting, one)
        refused.update(said)
        for name in set(waiting) - set(said):
            refused.pop(name, None)
        waiting = [name for name in waiting if OUT_OF_TIME in said.get(name, "")] if time.monotonic() < end else []
    return refused


def facts(node: dict) -> dict:
    """What we read of a Node: version, ready, cordoned, marked (by us), taints that keep pods away (`key=value:effect`), server,
    voter (None where not told)."""
    meta, status = node.get("metadata", {}), node.get("status", {})
    conditions = {one.get("type"): one.get("status") for one in status.get("conditions", [])}
    return {
        "version": status.get("nodeInfo", {}).get("kubeletVersion", ""),
        "ready": conditions.get("Ready") == "True",
        "cordoned": bool(node.get("spec", {}).get("unschedulable")),
        "marked": MARK in (meta.get("annotations") or {}),
        "taints": sorted(
            "%s=%s:%s" % (one.get("key", ""), one.get("value", ""), one["effect"])
            for one in node.get("spec", {}).get("taints") or []
            if one.get("effect") in ("NoSchedule", "NoExecute")
        ),
        "server": CONTROL_PLANE in (meta.get("labels") or {}),
        "voter": conditions["EtcdIsVoter"] == "True" if "EtcdIsVoter" in conditions else None,
    }


def each(names: list, act: Callable[[str], None]) -> dict:
    """Do one thing to many nodes side by side; name → sentence of those that refused."""

    def one(name: str) -> str:
        try:
            act(name)
        except Refused as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        said = list(pool.map(one, names))
    return {name: text for name, text in zip(names, said) if text}


def missing_voters(servers: dict, leaving: str) -> str:
    """Why etcd would lose its majority if this server stopped now; empty where it would not, and for a lone server."""
    members = {name: seen for name, seen in servers.items() if seen["voter"] is not None}
    if len(members) < 2:
        return ""
    healthy = sorted(name for name, seen in members.items() if seen["voter"] and seen["ready"] and name != leaving)
    needed = len(members) // 2 + 1
    if len(healthy) >= needed:
        return ""
    return "etcd needs %d of %d members and would have %d without %s (%s): bring the other servers back first" % (
        needed,
        len(members),
        len(healthy),
        leaving,
        ", ".join(healthy) or "none",
    )


def _items(text: str) -> list:
    """The objects in what kubectl printed: a list, a single object, or nothing."""
    if not text.strip():
        return []
    found = json.loads(text)
    return found.get("items", [found])
