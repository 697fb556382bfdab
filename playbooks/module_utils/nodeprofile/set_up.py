"""Whether RKE2 is this machine's already, by whomever: then who listens on its ports is RKE2 itself."""

from __future__ import annotations

import os

from ansible.module_utils.nodeprofile import services
from ansible.module_utils.nodeprofile.item import CannotChange, Node

CONFIG = "/etc/rancher/rke2/config.yaml"
UNITS = ("rke2-server.service", "rke2-agent.service")
RUNNING = ("active", "activating", "reloading")


def by_anyone(node: Node, root: str = "") -> bool:
    """By its settings, or by a unit that runs or comes with each boot: a quick start has no settings, and Rancher's are drop-ins
    alone. Drop-ins without such a unit may be the site's, from before the first bring-up."""
    if os.path.exists(root + CONFIG):
        return True
    try:
        return any(unit.get("ActiveState") in RUNNING or unit.get("UnitFileState") == "enabled" for unit in _units(node, root))
    except CannotChange:
        return False  # an item of services says that systemd does not answer


def runs(node: Node, root: str = "") -> bool:
    """Whether pods may run here: such a machine is drained before it is rebooted, and nobody has done that."""
    return any(unit.get("ActiveState") in RUNNING for unit in _units(node, root))


def _units(node: Node, root: str = "") -> list:
    return list(services.units(node, list(UNITS)).values()) if services.has_systemd(root) else []
