"""Which change of an RKE2 release is refused, and why, in one sentence; pure."""

from __future__ import annotations

import re
from typing import Optional

VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)(\d+))?\+rke2r(\d+)")
OLDEST_AGENT = 3
"""A kubelet may be this many minors older than the API server, and never newer (Kubernetes' version skew policy)."""


def parse(text: str) -> Optional[tuple]:
    """`v1.35.7+rke2r1` as a tuple in the order of releases; None where it is no RKE2 version."""
    found = VERSION.fullmatch(text)
    if found is None:
        return None
    pre = (("alpha", "beta", "rc").index(found[4]), int(found[5])) if found[4] else (3, 0)
    return (int(found[1]), int(found[2]), int(found[3]), pre, int(found[6]))


def refusal(installed: str, wanted: str) -> str:
    """Why `installed` does not become `wanted` in place; empty where it may, and where nothing is installed."""
    old, new = parse(installed), parse(wanted)
    if new is None:
        return "%s is no version of RKE2: write one as v1.35.7+rke2r1" % wanted
    if not installed or old == new:
        return ""
    if old is None:
        return "%s is installed, which is no version of RKE2: reset the host first" % installed
    if new < old:
        return (
            "%s is installed and %s is older: RKE2 is not downgraded in place; write rke2.version: %s, or go back by "
            "etcd's snapshot from before the upgrade: `bringup rollback SPEC`"
        ) % (installed, wanted, installed)
    if new[0] != old[0] or new[1] > old[1] + 1:
        step = "v%d.%d" % (old[0], old[1] + 1)
        return "from %s to %s skips a minor, which Kubernetes does not support: upgrade to a %s release first" % (
            installed,
            wanted,
            step,
        )
    return ""


def agent_refusal(wanted: str, servers: dict) -> str:
    """Why an agent may not run `wanted` beside these servers (name → version): it would be newer than one of them."""
    new = parse(wanted)
    for name, version in sorted(servers.items()):
        have = parse(version)
        if new is not None and have is not None and new[:2] > have[:2]:
            return "server %s runs %s, and an agent with %s would be newer: upgrade the servers first" % (name, version, wanted)
    return ""


def server_refusal(wanted: str, kubelets: dict) -> str:
    """Why a server may not run `wanted` beside these nodes (name → version): one would be too old for its API server."""
    new = parse(wanted)
    for name, version in sorted(kubelets.items()):
        have = parse(version)
        if new is not None and have is not None and (have[0] != new[0] or have[1] < new[1] - OLDEST_AGENT):
            return "node %s runs %s, too old for servers with %s (at most %d minors behind): upgrade or remove it first" % (
                name,
                version,
                wanted,
                OLDEST_AGENT,
            )
    return ""
