"""Reasons to leave a host as it is: its RKE2 has another role or owner, is rolling back, or cannot change to the release."""

from __future__ import annotations

import os
from typing import Any

from ansible.module_utils.rke2 import release_backup, rke2_settings, rke2_versions, rollback, site_paths

TOKEN = "/etc/rancher/rke2/token"
RUNNING = ("active", "activating", "reloading")
KINDS = {"rke2-server": "a server", "rke2-agent": "an agent"}


def release_refusal(seen: dict, wanted: str, servers: dict) -> str:
    """Return why this host refuses the `wanted` release; empty if it accepts it or none is wanted.

    `seen` is the observation of RKE2 (`rke2_status`), `servers` the version of each server by name.
    """
    if not wanted:
        return ""
    theirs = is_adopted(seen)
    if theirs and not seen["version"]:
        return "RKE2 runs here from another place than /usr/local/bin or /opt/rke2, set up by other means: reset the host by those"
    if theirs and seen["version"] != wanted:
        message = "RKE2 %s was set up here by other means: write rke2.version: %s to take it as it is, or reset the host"
        return message % (seen["version"], seen["version"])
    if theirs and not seen["ready"]:
        return "RKE2 was set up here by other means and is not ready (%s): bring it up, or reset the host" % seen["waiting_for"]
    if rollback.is_under_way(seen["version"]):
        return "this cluster is on its way back to %s: `bringup rollback SPEC` goes on with it" % seen["version"]
    return rke2_versions.refusal(seen["version"], wanted) or rke2_versions.agent_refusal(wanted, servers)


def role_refusal(module: Any, service: str) -> str:
    """Return why this host refuses the unit `service`: the unit of the other role is enabled or runs; empty if it is not.

    Changing roles in place would lose the other unit's configuration, and a server's etcd.
    """
    (other,) = set(KINDS) - {service}
    words = ["systemctl", "show", "--property=ActiveState,UnitFileState", other]
    shown = set(module.run_command(words, handle_exceptions=True)[1].split())
    if not shown & {"ActiveState=active", "ActiveState=activating", "UnitFileState=enabled"}:
        return ""
    message = "RKE2 runs here as %s, and the spec has it as %s: reset the host first, with a spec that has it as %s"
    return message % (KINDS[other], KINDS[service], KINDS[other])


def is_adopted(seen: dict) -> bool:
    """Return True if somebody else than bringup set up the RKE2 on this host. Data without an installed program does not count."""
    there = seen["state"] in RUNNING or (seen["joined"] and seen["version"])
    return bool(there) and not is_own_config()


def is_own_config(root: str = "") -> bool:
    """Return True if bringup wrote RKE2's configuration on this host.

    Without a config.yaml (RKE2's quick start needs none, Rancher writes drop-ins alone) the host is ours if a reset of ours was
    interrupted, or if both the token file and our release folder exist. RKE2's script removes the token and leaves the releases.
    """
    config = root + rke2_settings.CONFIG
    if os.path.exists(config):
        with open(config, errors="replace") as source:
            return source.read(len(rke2_settings.OURS)) == rke2_settings.OURS
    return os.path.exists(root + site_paths.MARK) or (os.path.exists(root + TOKEN) and os.path.isdir(root + release_backup.STORE))
