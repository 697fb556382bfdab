"""Checks whether one RKE2 release may follow another, or run beside others. Each refusal is one sentence."""

from __future__ import annotations

import re
from typing import Optional

VERSION = re.compile(r"v(\d+)\.(\d+)\.(\d+)(?:-(alpha|beta|rc)(\d+))?\+rke2r(\d+)")
OLDEST_AGENT = 3
"""Number of minor versions a kubelet may be older than the API server; it may never be newer (Kubernetes' version skew policy)."""


def parse(text: str) -> Optional[tuple]:
    """Return an RKE2 version such as `v1.35.7+rke2r1` as a tuple that sorts by release; None for any other text."""
    match = VERSION.fullmatch(text)
    if match is None:
        return None
    pre = (("alpha", "beta", "rc").index(match[4]), int(match[5])) if match[4] else (3, 0)  # a release sorts behind them
    return (int(match[1]), int(match[2]), int(match[3]), pre, int(match[6]))


def refusal(installed: str, wanted: str) -> str:
    """Return why release `installed` cannot be replaced by `wanted` in place; empty if it can, or if nothing is installed."""
    old, new = parse(installed), parse(wanted)
    if new is None:
        return "%s is no version of RKE2: write one as v1.35.7+rke2r1" % wanted
    if not installed or old == new:
        return ""
    if old is None:
        return "%s is installed, which is no version of RKE2: reset the host first" % installed
    if new < old:
        way_back = "go back by etcd's snapshot from before the upgrade: `bringup rollback SPEC`"
        message = "%s is installed and %s is older: RKE2 is not downgraded in place; write rke2.version: %s, or %s"
        return message % (installed, wanted, installed, way_back)
    if new[0] != old[0] or new[1] > old[1] + 1:
        step = "v%d.%d" % (old[0], old[1] + 1)
        message = "from %s to %s skips a minor, which Kubernetes does not support: upgrade to a %s release first"
        return message % (installed, wanted, step)
    return ""


def agent_refusal(wanted: str, servers: dict) -> str:
    """Return why an agent must not run `wanted`: it would be newer than one of the servers (name → version). Else empty."""
    new = parse(wanted)
    for name, version in sorted(servers.items()):
        have = parse(version)
        if new is not None and have is not None and new[:2] > have[:2]:
            return "server %s runs %s, and an agent with %s would be newer: upgrade the servers first" % (name, version, wanted)
    return ""


def server_refusal(wanted: str, kubelets: dict) -> str:
    """Return why a server must not run `wanted`: a node's kubelet (name → version) would be too old for it. Else empty."""
    new = parse(wanted)
    for name, version in sorted(kubelets.items()):
        have = parse(version)
        if new is not None and have is not None and (have[0] != new[0] or have[1] < new[1] - OLDEST_AGENT):
            message = "node %s runs %s, too old for servers with %s (at most %d minors behind): upgrade or remove it first"
            return message % (name, version, wanted, OLDEST_AGENT)
    return ""
