#!/usr/bin/python
"""Ansible module that checks and changes all host settings of a node profile in one round trip."""

from __future__ import annotations

import json
import time

from ansible.module_utils import host_lock, proxy_login
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodeprofile import background_work, convergence, facts, rke2_presence, storage, systemd_services
from ansible.module_utils.nodeprofile.item import NodeAccess

DOCUMENTATION = r"""
module: node_profile
short_description: Checks and changes all host settings of a node profile in one call
description:
  - Reads every host setting of the profile, changes those that differ, and then reads all of them again.
  - A setting that cannot be changed neither stops the others nor fails the task; C(failing) names it.
  - In check mode nothing is changed, and C(observation) says which settings differ.
options:
  profile:
    description: The host settings of all machines; bringup's own are the YAML files in `workflows/catalog/profile`.
    type: dict
    required: true
    suboptions: &part
      packages: {description: 'Packages to install; `a or b` accepts either of the two.', type: list, elements: str}
      files: {description: 'Files: path, content, mode, needs, reload, aside (keep a backup).', type: list, elements: dict}
      directories: {description: Directories by path with their mode., type: dict}
      modules: {description: Kernel modules by name; a path shows by its existence that one is built in., type: dict}
      blacklist: {description: Kernel modules that must not be loaded., type: list, elements: str}
      sysctls: {description: 'Values by name, set now and for later boots; some are minimum values.', type: dict}
      kernel_parameters: {description: Words of the kernel's command line., type: list, elements: str}
      hugepages: {description: Huge pages by size (2M or 1G)., type: dict}
      memlock: {description: 'Limit of locked memory, `unlimited` or KiB.', type: str}
      swap_off: {description: True to turn swap off now and for later boots., type: bool}
      services: {description: 'Units by name: started, stopped or masked.', type: dict}
      time_service: {description: True if a time service must run., type: bool}
      time_servers: {description: NTP servers for chrony., type: list, elements: str}
      disks: {description: Required free space in MiB by path., type: dict}
      ports: {description: Ports on which no program may listen before RKE2 is set up., type: list, elements: str}
      server_ports: {description: More such ports for servers only., type: list, elements: str}
      agent_ports: {description: More such ports for agents only., type: list, elements: str}
      mounts: {description: 'Paths that must be mount points, with the accepted file system types.', type: dict}
      executable: {description: Paths whose file system must let programs run., type: list, elements: str}
      containerd_templates: {description: Templates of containerd that must not replace RKE2's., type: list, elements: str}
      background: {description: 'Work of others to wait for: seconds, units (of upgrades).', type: dict}
      kernel_headers: {description: True if headers of the running kernel must be obtainable., type: bool}
      pod_resolv_conf: {description: Files of which RKE2 gives one to pods; checked., type: list, elements: str}
      dns: {description: 'Resolver settings: servers, search.', type: dict}
      links: {description: 'Interfaces of the fast network: names, devices, mtu.', type: dict}
      link_types: {description: 'Type of RDMA ports: layer, devices, count, rails.', type: dict}
      default_route: {description: True if there must be a default route., type: bool}
      interface_names: {description: 'Names of interfaces, with the PCI address of each.', type: dict}
      given_away: {description: 'PCI devices (vendor:device) whose interfaces may move into pods.', type: list, elements: str}
      routes: {description: 'Static routes: to, via, device.', type: list, elements: dict}
      selinux: {description: Mode of SELinux., type: str, choices: ['', enforcing, permissive]}
      apparmor: {description: Mode of AppArmor., type: str, choices: ['', enabled, disabled]}
      system_users: {description: System users by name with their comment., type: dict}
      users: {description: 'User accounts: name, groups, keys, sudo.', type: list, elements: dict}
      repositories: {description: 'Repositories by package name: id, path, unless (pattern of existing files), keys.', type: dict}
      firewall: {description: 'Ports to open if the firewall is kept: nodes, servers, api, networks, pods.', type: dict}
      pcie_acs: {description: C(off) to turn PCIe ACS off., type: str, choices: ['', 'off']}
      system: {description: 'Facts of the distribution: ids, package_manager, boot_loader, …', type: dict}
      gpu_groups: {description: Inventory groups whose machines also get C(gpu)., type: list, elements: str}
      gpu: {description: 'More settings, with the same keys, for machines with GPUs.', type: dict}
  groups: {description: Inventory groups of this machine., type: list, elements: str}
  hostname: {description: Name of the machine; empty leaves it alone., type: str}
  address: {description: IP address of the machine for /etc/hosts; empty for no line there., type: str}
  proxy_user: {description: User of the proxies in the environment; empty for none., type: str}
  proxy_password: {description: Password of the proxies., type: str}
  rebooted_from: {description: Boot ID before the reboot that the play has just requested., type: str}
  clock_seconds: {description: 'Longest wait, in seconds, for a running time service to synchronize the clock.', type: int}
author: [bringup]
"""

RETURN = r"""
failing: {description: 'Failed settings by name, each with the reason.', type: dict, returned: always}
unsettled: {description: Names of the settings that do not have the wanted value., type: list, returned: always}
reboot: {description: Reasons for a reboot; empty while RKE2 runs or if the initramfs failed., type: list, returned: always}
continues: {description: True if some settings can be changed only after that reboot., type: bool, returned: always}
boot_id: {description: Boot ID of the running system., type: str, returned: always}
observation: {description: 'JSON text: items (name, status, want, before, after, why), facts.', type: str, returned: always}
"""

KINDS = {
    "list": (
        *("packages", "ports", "server_ports", "agent_ports"),
        *("blacklist", "kernel_parameters", "time_servers", "given_away"),
        *("executable", "containerd_templates", "pod_resolv_conf"),
    ),
    "rows": ("files", "routes", "users"),
    "dict": (
        *("directories", "modules", "sysctls", "hugepages", "services", "disks"),
        *("mounts", "dns", "links", "interface_names", "system_users", "system", "firewall", "repositories"),
        *("background", "link_types"),
    ),
    "bool": ("swap_off", "time_service", "default_route", "kernel_headers"),
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
    **proxy_login.OPTIONS,
}


def main() -> None:
    """Apply the profile, read it again if something changed, and exit with all setting results, facts and reasons for a reboot."""
    began = time.monotonic()
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    host_lock.hold_or_fail(module, "node_profile")
    proxy_login.log_in(module.params)
    node = NodeAccess(module)
    if module.params["rebooted_from"]:
        systemd_services.wait_for_boot(node)
    want = convergence.machine_profile(module.params)
    quiet = background_work.wait(node, want["background"], bool(want["rebooted_from"]))
    items = convergence.settle_all(node, want)
    changed = any(entry["status"] == "changed" or (module.check_mode and entry["status"] == "differs") for entry in items)
    if changed and not module.check_mode:
        items = convergence.confirm(items, convergence.settle_all(node.reader(), want))
    asking, untold = convergence.packages_need_reboot(node, want)
    items += [*quiet, *untold]
    waiting = convergence.reboot_reasons(node, want, asking)
    node_facts = facts.gather(node, sorted(want["disks"]), began, module.params["clock_seconds"] if want["time_service"] else 0)
    runs = bool(waiting) and rke2_presence.is_running(node)
    node_facts.update(rke2_running=runs, gpu_machine=want["gpu_machine"], rebooted_from=want["rebooted_from"])
    node_facts.update(reboot_required=asking, reboot_reasons=waiting, disks_used=storage.is_used(node, want["disks"]))
    module.exit_json(
        changed=changed,
        failing={entry["name"]: "%s: %s" % (entry["name"], entry.get("why", "")) for entry in items if entry["status"] == "failed"},
        unsettled=[entry["name"] for entry in items if entry["status"] in ("failed", "differs")],
        reboot=[] if runs or convergence.is_without_initramfs(items) else waiting,
        continues=convergence.is_to_be_continued(items),
        boot_id=node_facts["boot_id"],
        diff=node.diffs if module._diff else [],
        # text, and no echo of the arguments: the controller marks and copies every leaf of a result several times
        observation=json.dumps({"items": items, "facts": node_facts}),
        invocation={},
    )


if __name__ == "__main__":
    main()
