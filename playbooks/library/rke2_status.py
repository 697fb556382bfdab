#!/usr/bin/python
"""An Ansible module that reads what an RKE2 service shows on its own host, and can wait in place until it is ready."""

from __future__ import annotations

import os
import platform
import re
import time
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import open_url

DOCUMENTATION = r"""
module: rke2_status
short_description: Reads the state of an RKE2 server or agent on its host
description:
  - Returns the version of the installed binary and the state of the unit, and whether the host itself calls the service ready.
  - With C(ready_seconds) it polls in place, so that waiting costs one round trip. It changes nothing.
options:
  service: {description: 'The unit, rke2-server or rke2-agent.', type: str, required: true}
  ready_seconds: {description: How long to wait until it is ready; 0 reads once and never fails., type: int}
  kubeconfig_address: {description: 'Address to put into a returned kubeconfig; empty: return none.', type: str}
author: [bringup]
"""

RETURN = r"""
observation: {description: The fields of HostFacts; kubeconfig where asked for., type: dict, returned: always}
architecture: {description: Machine architecture., type: str, returned: always}
"""

BINARIES = ("/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2")
KUBECONFIG = "/etc/rancher/rke2/rke2.yaml"
KUBECTL = "/var/lib/rancher/rke2/bin/kubectl"
CONFIG = "/etc/rancher/rke2/config.yaml"
KUBELET = "http://127.0.0.1:10248/healthz"
POLL_FIRST, POLL_MAX = 0.5, 5.0
LOG_LINES = "15"


def observe(module: AnsibleModule, service: str) -> dict:
    """The observation without a kubeconfig."""
    seen = unit(module, service)
    return {
        "service": service,
        "version": version(module),
        "state": seen.get("ActiveState", ""),
        "enabled": seen.get("UnitFileState") == "enabled",
        "ready": seen.get("ActiveState") == "active" and ready(module, service),
        "node_ip": node_ip(),
        "restarts": int(seen.get("NRestarts") or 0),
        "started": started(int(seen.get("ActiveEnterTimestampMonotonic") or 0)),
    }


def unit(module: AnsibleModule, service: str) -> dict:
    """What systemd says of the unit; empty where it does not run."""
    wanted = "ActiveState,UnitFileState,NRestarts,ActiveEnterTimestampMonotonic"
    code, output, _ = module.run_command(["systemctl", "show", "--property=" + wanted, service])
    return dict(line.partition("=")[::2] for line in output.splitlines()) if code == 0 else {}


def started(microseconds: int) -> float:
    """Seconds since the epoch of a time on the monotonic clock; 0 where the unit never was active."""
    return round(time.time() - time.monotonic() + microseconds / 1e6, 3) if microseconds else 0.0


def version(module: AnsibleModule) -> str:
    """`rke2 version v1.35.7+rke2r1 (hash)` → `v1.35.7+rke2r1`; empty where nothing is installed."""
    for binary in BINARIES:
        if os.path.exists(binary):
            found = re.search(r"rke2 version (v\S+)", module.run_command([binary, "--version"])[1])
            return found.group(1) if found else ""
    return ""


def ready(module: AnsibleModule, service: str) -> bool:
    """A server's API server says so with all its checks; an agent's kubelet does."""
    if service == "rke2-server":
        if not os.path.exists(KUBECTL):
            return False
        command = [KUBECTL, "--kubeconfig", KUBECONFIG, "--request-timeout=5s", "get", "--raw", "/readyz"]
        return module.run_command(command)[1].strip() == "ok"
    try:
        return open_url(KUBELET, timeout=5, use_proxy=False).read().strip() == b"ok"
    except OSError:
        return False


def node_ip() -> str:
    """The address that the configuration gives the node."""
    try:
        with open(CONFIG) as source:
            found = re.search(r"^node-ip:\s*(\S+)", source.read(), re.MULTILINE)
    except OSError:
        return ""
    return found.group(1).strip("'\"") if found else ""


def kubeconfig(address: str) -> str:
    """The admin kubeconfig with an address that others can reach."""
    with open(KUBECONFIG) as source:
        host = "[%s]" % address if ":" in address else address
        return source.read().replace("https://127.0.0.1:6443", "https://%s:6443" % host)


def main() -> None:
    """Read, and wait if asked to."""
    spec: dict[str, Any] = {
        "service": {"type": "str", "required": True, "choices": ["rke2-server", "rke2-agent"]},
        "ready_seconds": {"type": "int", "default": 0},
        "kubeconfig_address": {"type": "str", "default": ""},
    }
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    service, seconds = module.params["service"], module.params["ready_seconds"]
    until = time.monotonic() + seconds
    seen = observe(module, service)
    pause = POLL_FIRST
    while not seen["ready"] and time.monotonic() < until and not module.check_mode:
        time.sleep(pause)
        pause = min(pause * 1.5, POLL_MAX)
        seen = observe(module, service)
    if seen["ready"] and module.params["kubeconfig_address"]:
        seen["kubeconfig"] = kubeconfig(module.params["kubeconfig_address"])
    result = {"changed": False, "observation": seen, "architecture": platform.machine()}
    if seconds and not seen["ready"] and not module.check_mode:
        _, log, _ = module.run_command(["journalctl", "--unit", service, "--lines", LOG_LINES, "--no-pager", "--output", "cat"])
        module.fail_json(
            msg="%s is %s and not ready after %d s: %s" % (service, seen["state"], seconds, log.strip()[-600:]), **result
        )
    module.exit_json(**result)


if __name__ == "__main__":
    main()
