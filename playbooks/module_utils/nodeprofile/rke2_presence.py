"""Checks for an RKE2 that is already on this machine, whoever installed it."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile import systemd_services
from ansible.module_utils.nodeprofile.item import CannotChange, NodeAccess

CONFIG = "/etc/rancher/rke2/config.yaml"
UNITS = ("rke2-server.service", "rke2-agent.service")
RUNNING = ("active", "activating", "reloading")


def is_set_up(node: NodeAccess, root: str = "") -> bool:
    """Return True if this machine has RKE2's config.yaml, or an RKE2 unit that runs or starts at boot.

    RKE2's quick start has no config.yaml, and Rancher writes drop-ins alone. Drop-ins without such a unit may be the site's, from
    before the first bring-up.
    """
    if os.path.exists(root + CONFIG):
        return True
    try:
        return any(unit.get("ActiveState") in RUNNING or unit.get("UnitFileState") == "enabled" for unit in _units(node, root))
    except CannotChange:
        return False  # an item of services says that systemd does not answer


def is_running(node: NodeAccess, root: str = "") -> bool:
    """Return True if an RKE2 unit runs, so that pods may run here and the machine must be drained before a reboot."""
    return any(unit.get("ActiveState") in RUNNING for unit in _units(node, root))


def _units(node: NodeAccess, root: str = "") -> list:
    return list(systemd_services.units(node, list(UNITS)).values()) if systemd_services.has_systemd(root) else []
