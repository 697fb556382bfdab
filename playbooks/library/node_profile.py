#!/usr/bin/python
"""An Ansible module that checks and changes a whole node profile in one round trip."""

from __future__ import annotations

import json
import time

from ansible.module_utils import alone, proxies
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodeprofile import facts, services, set_up, settling, storage
from ansible.module_utils.nodeprofile.item import Node

DOCUMENTATION = r"""
module: node_profile
short_description: Checks and changes a whole node profile in one round trip
description:
  - Reads every item of the profile, changes those that differ, and reads the whole profile again.
  - An item that cannot be changed fails alone; the others go on. The host never fails because of an item.
  - In check mode nothing changes and the items say what differs.
options:
  profile:
    description: What every machine must be; `workflows/catalog/profile` holds it as data.
    type: dict
    required: true
    suboptions: &part
      packages: {description: 'Packages that must be there; `a or b`: either will do.', type: list, elements: str}
      files: {description: 'Whole files: path, content, mode, needs, reload, aside.', type: list, elements: dict}
      directories: {description: Directories by path with their mode., type: dict}
      modules: {description: Kernel modules by name with the path that shows one that is built in., type: dict}
      blacklist: {description: Kernel modules that must not be loaded., type: list, elements: str}
      sysctls: {description: 'Values of the running kernel and of its next boots; of some, at least.', type: dict}
      kernel_parameters: {description: Words of the kernel's command line., type: list, elements: str}
      hugepages: {description: Huge pages by size (2M or 1G)., type: dict}
      memlock: {description: 'Limit of locked memory, `unlimited` or KiB.', type: str}
      swap_off: {description: Whether swap must be off now and after a boot., type: bool}
      services: {description: 'Units by name: started, stopped or masked.', type: dict}
      time_service: {description: Whether a time service must run., type: bool}
      time_servers: {description: NTP servers for chrony., type: list, elements: str}
      disks: {description: Free space by path in MiB., type: dict}
      ports: {description: Ports on which nobody may listen before RKE2 is set up., type: list, elements: str}
      server_ports: {description: Those of servers alone., type: list, elements: str}
      agent_ports: {description: Those of agents alone., type: list, elements: str}
      mounts: {description: File systems of their own by path with their types., type: dict}
      dns: {description: 'DNS: servers, search.', type: dict}
      links: {description: 'Interfaces of the fabric: names, devices, mtu.', type: dict}
      default_route: {description: Whether there must be a default route., type: bool}
      interface_names: {description: 'Names of interfaces, with the PCI address of each.', type: dict}
      given_away: {description: 'Devices whose interfaces pods may have (vendor:device).', type: list, elements: str}
      routes: {description: 'Routes: to, via, device.', type: list, elements: dict}
      selinux: {description: Mode of SELinux., type: str, choices: ['', enforcing, permissive]}
      apparmor: {description: Mode of AppArmor., type: str, choices: ['', enabled, disabled]}
      system_users: {description: Users of services by name with their comment., type: dict}
      users: {description: 'People: name, groups, keys, sudo.', type: list, elements: dict}
      repositories: {description: 'Package: id, path, unless and keys of its repository.', type: dict}
      firewall: {description: 'What a firewall that stays lets in: nodes, servers, api, networks, pods.', type: dict}
      pcie_acs: {description: What PCIe ACS must be., type: str, choices: ['', 'off']}
      system: {description: 'What differs between distributions: ids, package_manager, boot_loader, …', type: dict}
      gpu_groups: {description: Inventory groups whose machines must be what C(gpu) says., type: list, elements: str}
      gpu: {description: The same keys for machines with GPUs alone., type: dict}
  groups: {description: Inventory groups of this machine., type: list, elements: str}
  hostname: {description: Name of the machine; empty leaves it alone., type: str}
  address: {description: Its IP address for /etc/hosts; empty for no line there., type: str}
  proxy_user: {description: User of the proxies in the environment; empty for none., type: str}
  proxy_password: {description: Its password., type: str}
  rebooted_from: {description: Id of the boot before the one that the play has just asked for., type: str}
  clock_seconds: {description: How long a time service that runs is waited for until the clock is synchronized., type: int}
author: [bringup]
"""

RETURN = r"""
failing: {description: A sentence for each item that failed., type: dict, returned: always}
unsettled: {description: Names of the items that are not as wanted., type: list, returned: always}
reboot: {description: Why to reboot it; empty while RKE2 runs there or its initramfs failed., type: list, returned: always}
continues: {description: Whether some items can be changed only after that reboot., type: bool, returned: always}
boot_id: {description: Id of this boot., type: str, returned: always}
observation: {description: 'Items (name, status, want, before, after, why) and facts, as JSON.', type: str, returned: always}
"""

KINDS = {
    "list": (
        *("packages", "ports", "server_ports", "agent_ports"),
        *("blacklist", "kernel_parameters", "time_servers", "given_away"),
    ),
    "rows": ("files", "routes", "users"),
    "dict": (
        *("directories", "modules", "sysctls", "hugepages", "services", "disks"),
        *("mounts", "dns", "links", "interface_names", "system_users", "system", "firewall", "repositories"),
    ),
    "bool": ("swap_off", "time_service", "default_route"),
    "str": ("memlock",),
}
PART = {
    **{name: {"type": "list", "elements": "str", "default": []} for name in KINDS["list"]},
    **{name: {"type": "list", "elements": "dict", "default": []} for name in KINDS["rows"]},
    **{name: {"type": "dict", "default": {}} for name in KINDS["dict"]},
    **{name: {"type": "bool", "default": False} for name in KINDS["bool"]},
    **{name: {"type": "str", "default": ""} for name in KINDS["str"]},
    "selinux": {"type": "str", "choices": ["", "enforcing", "permissive"], "default": ""},
    "apparmor": {"type": "str", "choices": ["", "enabled", "disabled"], "default": ""},
    "pcie_acs": {"type": "str", "choices": ["", "off"], "default": ""},
}
PROFILE = dict(
    PART,
    gpu_groups={"type": "list", "elements": "str", "default": []},
    gpu={"type": "dict", "options": PART, "apply_defaults": True},
)
SPEC = {
    "profile": {"type": "dict", "required": True, "options": PROFILE},
    "groups": {"type": "list", "elements": "str", "default": []},
    "hostname": {"type": "str", "default": ""},
    "address": {"type": "str", "default": ""},
    "rebooted_from": {"type": "str", "default": ""},
    "clock_seconds": {"type": "int", "default": 60},
    **proxies.OPTIONS,
}


def main() -> None:
    """Read the profile, settle it, read it again where something changed, and return every item."""
    began = time.monotonic()
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    alone.or_fail(module, "node_profile")
    proxies.log_in(module.params)
    node = Node(module)
    if module.params["rebooted_from"]:
        services.booted(node)
    want = settling.of_machine(module.params)
    items = settling.settle_all(node, want)
    changed = any(entry["status"] == "changed" or (module.check_mode and entry["status"] == "differs") for entry in items)
    if changed and not module.check_mode:
        items = settling.confirmed(items, settling.settle_all(node.reader(), want))
    asking, untold = settling.packages_ask(node, want)
    items += untold
    waiting = settling.reboot_reasons(node, want, asking)
    seen = facts.gather(node, sorted(want["disks"]), began, module.params["clock_seconds"] if want["time_service"] else 0)
    runs = bool(waiting) and set_up.runs(node)
    seen.update(rke2_running=runs, gpu_machine=want["gpu_machine"], rebooted_from=want["rebooted_from"])
    seen.update(reboot_required=asking, reboot_reasons=waiting, disks_used=storage.is_used(node, want["disks"]))
    module.exit_json(
        changed=changed,
        failing={entry["name"]: "%s: %s" % (entry["name"], entry.get("why", "")) for entry in items if entry["status"] == "failed"},
        unsettled=[entry["name"] for entry in items if entry["status"] in ("failed", "differs")],
        reboot=[] if runs or settling.is_without_initramfs(items) else waiting,
        continues=settling.is_to_be_continued(items),
        boot_id=seen["boot_id"],
        diff=node.diffs if module._diff else [],
        # text, and no echo of the arguments: the controller marks and copies every leaf of a result several times
        observation=json.dumps({"items": items, "facts": seen}),
        invocation={},
    )


if __name__ == "__main__":
    main()
