"""Why a host is left as it is: RKE2 runs there in another role or by other means, goes back, or has a release in the way."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.rke2 import kept, places, rollback, settings, versions

TOKEN = "/etc/rancher/rke2/token"
RUNNING = ("active", "activating", "reloading")
KINDS = {"rke2-server": "a server", "rke2-agent": "an agent"}


def of(seen: dict, wanted: str, servers: dict) -> str:
    """Why the wanted release is refused here; empty where it is not, or none is named."""
    if not wanted:
        return ""
    theirs = is_theirs(seen)
    if theirs and not seen["version"]:
        return "RKE2 runs here from another place than /usr/local/bin or /opt/rke2, set up by other means: reset the host by those"
    if theirs and seen["version"] != wanted:
        said = "RKE2 %s was set up here by other means: write rke2.version: %s to take it as it is, or reset the host"
        return said % (seen["version"], seen["version"])
    if theirs and not seen["ready"]:
        return "RKE2 was set up here by other means and is not ready (%s): bring it up, or reset the host" % seen["waiting_for"]
    if rollback.is_under_way(seen["version"]):
        return "this cluster is on its way back to %s: `bringup rollback SPEC` goes on with it" % seen["version"]
    return versions.refusal(seen["version"], wanted) or versions.agent_refusal(wanted, servers)


def of_role(module: Any, service: str) -> str:
    """Why this service is refused here: the other one is enabled, or runs, and would lose its configuration, a server its etcd."""
    (other,) = set(KINDS) - {service}
    words = ["systemctl", "show", "--property=ActiveState,UnitFileState", other]
    shown = set(module.run_command(words, handle_exceptions=True)[1].split())
    if not shown & {"ActiveState=active", "ActiveState=activating", "UnitFileState=enabled"}:
        return ""
    said = "RKE2 runs here as %s, and the spec has it as %s: reset the host first, with a spec that has it as %s"
    return said % (KINDS[other], KINDS[service], KINDS[other])


def is_theirs(seen: dict) -> bool:
    """Whether somebody else has brought this host into a cluster, or does so now; that is taken as it is, or not at all. Data
    alone, without a program, is what stays where a system is installed anew: it comes back."""
    there = seen["state"] in RUNNING or (seen["joined"] and seen["version"])
    return bool(there) and not is_ours()


def is_ours(root: str = "") -> bool:
    """Whether we wrote the configuration. RKE2 needs none (its quick start), and Rancher writes drop-ins alone: without one, ours
    is where a reset of ours was killed, and where both the token's file and the releases lie that we bring. RKE2's own script
    leaves the releases and removes the token."""
    config = root + settings.CONFIG
    if os.path.exists(config):
        with open(config, errors="replace") as source:
            return source.read(len(settings.OURS)) == settings.OURS
    return os.path.exists(root + places.MARK) or (os.path.exists(root + TOKEN) and os.path.isdir(root + kept.STORE))
