#!/usr/bin/python
"""An Ansible module that checks and changes a whole node profile in one round trip."""

from __future__ import annotations

import os
from typing import Optional

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodeprofile import facts, files, kernel, packages, services
from ansible.module_utils.nodeprofile.item import Node, measured

DOCUMENTATION = r"""
module: node_profile
short_description: Checks and changes a whole node profile in one round trip
description:
  - Reads every item of the profile, changes those that differ, and reads them again.
  - An item that cannot be changed fails alone; the others go on. The host never fails because of an item.
  - In check mode nothing changes and the items say what differs.
options:
  profile:
    description: The profile.
    type: dict
    required: true
    suboptions:
      packages: {description: Packages that must be there beside those of the family., type: list, elements: str}
      families: {description: 'What differs between distributions, by ID or ID_LIKE of os-release.', type: dict}
      files: {description: 'Whole files: path, content, mode, needs, reload, family.', type: list, elements: dict}
      directories: {description: 'Directories: path, mode.', type: list, elements: dict}
      modules: {description: 'Kernel modules: name, evidence.', type: list, elements: dict}
      blacklist: {description: Kernel modules that must not be loaded., type: list, elements: str}
      sysctls: {description: Values of the running kernel., type: dict}
      swap_off: {description: Whether swap must be off now and after a boot., type: bool}
      hostname: {description: Name of the machine., type: str}
      hosts: {description: 'Our lines in /etc/hosts: address, names.', type: list, elements: dict}
      services: {description: 'Units: name, state started, stopped or masked.', type: list, elements: dict}
      time_service: {description: Whether a time service must run., type: bool}
      disks: {description: 'Free space: path, free_mib.', type: list, elements: dict}
author: [bringup]
"""

RETURN = r"""
failing: {description: A sentence for each item that failed., type: dict, returned: always}
unsettled: {description: Names of the items that are not as wanted., type: list, returned: always}
reboot: {description: Why the machine asks for a reboot., type: list, returned: always}
reloads: {description: What must learn of a changed file., type: list, returned: always}
family: {description: The family of this machine among the given ones., type: str, returned: always}
observation: {description: 'Items (name, status, want, before, after, why) and facts.', type: dict, returned: always}
"""

ENTRY = {"type": "list", "elements": "dict", "default": []}
PROFILE = {
    "packages": {"type": "list", "elements": "str", "default": []},
    "families": {"type": "dict", "default": {}},
    "files": dict(
        ENTRY,
        options={
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "required": True},
            "mode": {"type": "str", "default": "0644"},
            "needs": {"type": "path", "default": ""},
            "reload": {"type": "str", "default": ""},
            "family": {"type": "str", "default": ""},
        },
    ),
    "directories": dict(ENTRY, options={"path": {"type": "path", "required": True}, "mode": {"type": "str", "default": "0755"}}),
    "modules": dict(ENTRY, options={"name": {"type": "str", "required": True}, "evidence": {"type": "path", "default": ""}}),
    "blacklist": {"type": "list", "elements": "str", "default": []},
    "sysctls": {"type": "dict", "default": {}},
    "swap_off": {"type": "bool", "default": False},
    "hostname": {"type": "str", "default": ""},
    "hosts": dict(
        ENTRY,
        options={"address": {"type": "str", "required": True}, "names": {"type": "list", "elements": "str", "required": True}},
    ),
    "services": dict(
        ENTRY,
        options={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "stopped", "masked"], "default": "started"},
        },
    ),
    "time_service": {"type": "bool", "default": False},
    "disks": dict(ENTRY, options={"path": {"type": "path", "required": True}, "free_mib": {"type": "int", "required": True}}),
}
SPEC = {"profile": {"type": "dict", "required": True, "options": PROFILE}}


def family_name(families: dict) -> str:
    """The family of this machine: its own ID, else the first of ID_LIKE that is known; empty if none is."""
    release = facts.os_release()
    names = [release.get("ID", ""), *release.get("ID_LIKE", "").split()]
    return next((name for name in names if name in families), "")


def reboot_reasons(blacklist: list) -> list:
    """What only a reboot changes: modules that are in use, and what packages ask for."""
    asked = ["a package asks for it"] if os.path.exists("/run/reboot-required") else []
    return asked + ["%s is loaded" % name for name in blacklist if kernel.is_loaded(name)]


def settle_all(node: Node, want: dict, family: Optional[dict]) -> list:
    """Every item of the profile: packages before the services that they bring, modules before their sysctls."""
    return [
        measured("root", os.geteuid() == 0, "uid 0", "uid %d" % os.geteuid(), "the SSH user needs sudo without a password"),
        *files.disks(want["disks"]),
        *files.hostname(node, want["hostname"]),
        *files.hosts(node, want["hosts"]),
        *packages.packages(node, [*(family or {}).get("packages", []), *want["packages"]], family),
        *files.files(node, [entry for entry in want["files"] if entry["family"] in ("", family_name(want["families"]))]),
        *files.directories(node, want["directories"]),
        *files.swap(node, want["swap_off"]),
        *kernel.modules(node, want["modules"]),
        *kernel.blacklist(node, want["blacklist"]),
        *kernel.sysctls(node, want["sysctls"]),
        *services.services(node, want["services"]),
        *services.time_service(node, (family or {}).get("time_services", []) if want["time_service"] else []),
    ]


def main() -> None:
    """Read the profile, settle it, and return every item."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    node = Node(module)
    want = module.params["profile"]
    name = family_name(want["families"])
    items = settle_all(node, want, want["families"].get(name))
    result = {
        "changed": any(entry["status"] in ("changed", "differs") for entry in items),
        "failing": {
            entry["name"]: "%s: %s" % (entry["name"], entry.get("why", "")) for entry in items if entry["status"] == "failed"
        },
        "unsettled": [entry["name"] for entry in items if entry["status"] in ("failed", "differs")],
        "reboot": reboot_reasons(want["blacklist"]),
        "reloads": node.reloads,
        "family": name,
        "diff": node.diffs,
        "observation": {"items": items, "facts": facts.gather(node, [entry["path"] for entry in want["disks"]])},
    }
    module.exit_json(**result)


if __name__ == "__main__":
    main()
