"""Other programs that change the machine: cloud-init and the distribution's own upgrades. The play waits for them once, bounded."""

from __future__ import annotations

import os

from ansible.module_utils import polling
from ansible.module_utils.nodeprofile import systemd_services
from ansible.module_utils.nodeprofile.item import OK, UNAVAILABLE, CannotChange, Item, NodeAccess, item

NAME = "other work on the machine"
NONE = "none"
ENABLED, RESULT = "/run/cloud-init/enabled", "/run/cloud-init/result.json"
"""File of a boot at which cloud-init runs, made by its generator, and the file that cloud-init writes when it has ended."""
CLOUD_INIT = (
    *("cloud-init-local.service", "cloud-init.service", "cloud-init-network.service"),
    *("cloud-config.service", "cloud-final.service"),
)
"""Units of cloud-init in the order in which they run."""
AT_WORK = ("activating", "reloading", "deactivating")
"""States of a unit of type oneshot while its command runs."""


def wait(node: NodeAccess, wanted: dict, rebooted: bool, root: str = "", pause: float = polling.FIRST) -> list:
    """Wait until nobody else changes the machine, for at most `seconds`; return the setting result in a list, empty if not wanted.

    `wanted` has `seconds` and `units`, the distribution's units for upgrades. A run that only reads does not wait. After the play's
    own reboot only cloud-init counts: it may write settings anew, while an upgrade that a timer starts at each boot changes none.
    """
    if not wanted:
        return []
    units = [] if rebooted else list(wanted.get("units") or [])
    seconds = 0.0 if node.check_mode else float(wanted.get("seconds") or 0)
    if node.check_mode and not rebooted:
        return [item(NAME, OK, want=NONE, after=NONE)]  # nothing is changed, so nothing can collide
    busy: list = []
    waited = 0.0
    for waited in polling.attempts(seconds, pause):
        busy = at_work(node, units, root)
        if not busy:
            return [_quiet(waited)]
    after = " after %d s" % waited if waited else ""
    why = "%s still at work%s, and may change what the play sets" % (_listed(busy), after)
    return [item(NAME, UNAVAILABLE, want=NONE, before=_listed(busy), after=_listed(busy), why=why)]


def _quiet(waited: float) -> Item:
    return item(NAME, OK, want=NONE, after=NONE, why="waited %d s for it" % waited if waited >= 1 else "")


def at_work(node: NodeAccess, units: list, root: str = "") -> list:
    """Return the names of programs that are at work: `cloud-init`, and units of `units`; an empty list without systemd."""
    if not systemd_services.has_systemd(root):
        return []
    begun = os.path.exists(root + ENABLED) and not os.path.exists(root + RESULT)
    try:
        states = systemd_services.units(node, [*units, *(CLOUD_INIT if begun else ())])
    except CannotChange:
        return []  # an item of services says that systemd does not answer
    working = [name for name, unit in states.items() if unit.get("ActiveState") in AT_WORK]
    names = ["cloud-init" if name in CLOUD_INIT else name for name in working]
    # between two of its units none is at work, but the last one is still to come, unless the boot has ended without it
    last = states.get(CLOUD_INIT[-1], {})
    if begun and last.get("LoadState") == "loaded" and last.get("ActiveState") == "inactive" and _is_booting(node):
        names.append("cloud-init")
    return list(dict.fromkeys(names))


def _is_booting(node: NodeAccess) -> bool:
    return node.run("systemctl", "is-system-running")[1].strip() in systemd_services.BOOTING


def _listed(names: list) -> str:
    return ", ".join(names)
