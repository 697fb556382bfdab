#!/usr/bin/python
"""An Ansible module that reads what an RKE2 service shows on its own host, and can wait in place until it is ready."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import time
from typing import Any, Callable, Optional

from ansible.module_utils import alone, direct, rke2metrics, waiting
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import aside, kept, kube, mounts, own_address, pending, refusals, rollback, settings, supervisor

DOCUMENTATION = r"""
module: rke2_status
short_description: Reads the state of an RKE2 server or agent on its host
description:
  - Returns the version of the installed binary and the state of the unit, and whether the host itself calls the service ready.
  - With C(ready_seconds) it polls in place, so that waiting costs one round trip. It changes nothing but our own mark of a
    restart to do, which goes once the service is ready.
options:
  service: {description: 'The unit, rke2-server or rke2-agent.', type: str, required: true}
  wanted: {description: 'A release: C(refusal) then says why it cannot take the place of what is installed.', type: str}
  servers: {description: Version of every server by name; an agent may not be newer., type: dict}
  ready_seconds: {description: How long to wait until it is ready; 0 reads once and never fails., type: int}
  not_before: {description: Invocation of the unit that must be over before it counts as ready., type: str}
  kubeconfig_address: {description: 'Address to put into a returned kubeconfig; empty: return none, and no token.', type: str}
  address: {description: What this host is reached by; C(own_address) says it where it is the host's own and of IPv4., type: str}
  ping: {description: 'Addresses of supervisors; C(pings) then says which one answers.', type: list, elements: str}
  rolled_back: {description: The release that was put back., type: str}
  restored: {description: The snapshot that etcd was set back to., type: str}
  etcd_writes: {description: 'How often etcd shall have written its log before its figures are read; waits 90 s for it.', type: int}
author: [bringup]
"""

RETURN = r"""
observation: {description: The fields of HostFacts; kubeconfig and token where asked for., type: dict, returned: always}
architecture: {description: Machine architecture., type: str, returned: always}
adopted: {description: Whether somebody else set RKE2 up here., type: bool, returned: always}
refusal: {description: Why the wanted release is refused., type: str, returned: always}
start: {description: Which start of the unit this is., type: str, returned: always}
pending: {description: Whether a change waits for a restart., type: bool, returned: always}
cleared: {description: Whether its etcd was removed on the way back to a release before., type: bool, returned: always}
half: {description: Whether a release was being put in the place of another when a run was killed., type: bool, returned: always}
server: {description: The server that the configuration joins., type: str, returned: always}
own_address:
  description: 'The asked address for its node; empty: not the host''s, of IPv6, or a drop-in names another.'
  type: str
  returned: always
pings: {description: 'The first asked address where a supervisor answers; empty: none.', type: str, returned: always}
"""

BINARIES = ("/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2")
KUBECONFIG = kube.KUBECONFIG
TOKEN = "/var/lib/rancher/rke2/server/token"
ETCD = "/var/lib/rancher/rke2/server/db/etcd"
JOINED = {"rke2-server": ETCD, "rke2-agent": "/var/lib/rancher/rke2/agent/kubelet.kubeconfig"}
"""What is there once the host has been part of a cluster. An empty folder, as a disk that the site mounted for etcd, is not."""
KUBELET = "http://127.0.0.1:10248/healthz"
LOCAL = "127.0.0.1"
CRASHES = 10
"""Restarts while it is waited for, after which it is given up: systemd starts RKE2 again after 5 s, so that is a minute of them."""
WRITES_SECONDS = 90
"""The leases of an idle cluster alone make etcd write twice a second."""
LOG_LINES = "15"


def observe(module: AnsibleModule, service: str) -> tuple:
    """The observation without secrets, and the unit's invocation."""
    seen = unit(module, service)
    active = seen.get("ActiveState") == "active"
    joined = os.path.exists(JOINED[service]) and mounts.holds(JOINED[service], [JOINED[service]])
    facts = {
        "service": service,
        "version": version(module),
        "state": seen.get("ActiveState", ""),
        "enabled": seen.get("UnitFileState") == "enabled",
        "joined": joined,
        "kept": kept.version_kept() or "",
        "aside": aside.found(),
        "node_ip": settings.find("node-ip"),
        "restarts": int(seen.get("NRestarts") or 0),
        **started(int(seen.get("ActiveEnterTimestampMonotonic") or 0)),
    }
    if service == "rke2-server":
        facts["supervisor"] = active and supervised()
        facts["etcd_healthy"] = active and etcd_health() if joined else None
    lacks = lacking(facts, lambda: answers(module, service))
    if service == "rke2-server" and not lacks and module.params["ready_seconds"]:
        lacks = member(settings.find("node-name") or socket.gethostname())
    facts["ready"], facts["waiting_for"] = not lacks, ", ".join(lacks)
    return facts, seen.get("InvocationID", "")


def lacking(facts: dict, answering: Callable[[], bool]) -> list:
    """What a service that was seen like this still lacks to be ready by itself."""
    if facts["state"] != "active":
        return ["unit %s" % (facts["state"] or "unknown")]
    lacks = [name for name in ("supervisor", "etcd_healthy") if facts.get(name) is False]
    return lacks + ([] if answering() else ["API server" if facts["service"] == "rke2-server" else "kubelet"])


def unit(module: AnsibleModule, service: str) -> dict:
    """What systemd says of the unit; empty where it does not run."""
    wanted = "ActiveState,UnitFileState,NRestarts,ActiveEnterTimestampMonotonic,InvocationID"
    code, output, _ = module.run_command(["systemctl", "show", "--property=" + wanted, service])
    return dict(line.partition("=")[::2] for line in output.splitlines()) if code == 0 else {}


def started(microseconds: int) -> dict:
    """When the unit came up (since the epoch) and how long ago, in seconds, by the monotonic clock; 0 where it never did."""
    ago = time.monotonic() - microseconds / 1e6 if microseconds else 0.0
    return {"started": round(time.time() - ago, 3) if microseconds else 0.0, "up_seconds": round(ago, 3)}


def version(module: AnsibleModule) -> str:
    """`rke2 version v1.35.7+rke2r1 (hash)` → `v1.35.7+rke2r1`; empty where nothing is installed."""
    binary = installed()
    if not binary:
        return ""
    found = re.search(r"rke2 version (v\S+)", module.run_command([binary, "--version"], handle_exceptions=True)[1])
    return found.group(1) if found else ""


def installed() -> str:
    """The binary that is there; empty where there is none."""
    return next((binary for binary in BINARIES if os.path.exists(binary)), "")


def supervised() -> bool:
    """Whether the host's own supervisor answers and calls itself ready. One that refuses its own token file was given another
    by hand, and answers nevertheless."""
    return supervisor.state(LOCAL, read(TOKEN))[0] in (supervisor.PONG, supervisor.REFUSED, supervisor.STRANGER)


def etcd_health() -> bool:
    """Whether the host's etcd member says that it is healthy."""
    try:
        return str(json.loads(rke2metrics.answer("/health")).get("health")) == "true"
    except ValueError:
        return False


def answers(module: AnsibleModule, service: str) -> bool:
    """A server's API server says so with all its checks; an agent's kubelet does."""
    if service == "rke2-server":
        if not os.path.exists(kube.KUBECTL):
            return False
        command = [kube.KUBECTL, "--kubeconfig", KUBECONFIG, "--request-timeout=5s", "get", "--raw", "/readyz"]
        return module.run_command(command, handle_exceptions=True)[1].strip() == "ok"
    try:
        return direct.get(KUBELET).strip() == b"ok"
    except (OSError, ValueError):
        return False


def encryption(module: AnsibleModule) -> str:
    """`Enabled` or `Disabled`, as RKE2 says of its Secrets; empty where it does not say."""
    said = module.run_command([installed(), "secrets-encrypt", "status"], handle_exceptions=True)[1] if installed() else ""
    found = re.search(r"^Encryption Status:\s*(\w+)", said, re.MULTILINE)
    return found.group(1) if found else ""


def read(path: str) -> str:
    """A file without its last newline; empty where it is not there."""
    try:
        with open(path) as source:
            return source.read().rstrip("\n")
    except OSError:
        return ""


def secrets(address: str) -> dict:
    """The admin kubeconfig with an address that others can reach, and the token in its secure form."""
    shown = read(KUBECONFIG).replace("https://127.0.0.1:6443", "https://%s:6443" % supervisor.host(address))
    return {name: text for name, text in (("kubeconfig", shown + "\n"), ("token", read(TOKEN))) if text.strip()}


def member(name: str) -> list:
    """What a server that is ready by itself still lacks to be a full member of its cluster: etcd takes one learner at a time."""
    try:
        node = kube.Kube().nodes([name]).get(name)
    except kube.Refused:
        return ["API server"]
    return ["its Node"] if node is None else ["etcd vote"] if node["voter"] is False else []


def wait(module: AnsibleModule, service: str, seconds: int, not_before: str) -> tuple:
    """The last observation, the unit's invocation, and why the wait ended early; empty: ready, or time was up."""
    seen, invocation, why, before, failed = {}, "", "", sys.maxsize, False
    for passed in waiting.rounds(0 if module.check_mode else seconds):
        seen, invocation = observe(module, service)
        if seen["ready"] and invocation != not_before:
            break
        before = min(before, seen["restarts"])
        crashes = seen["restarts"] - before
        # a unit that is to be started is still failed until systemd comes to it: what counts is the second look
        why = "systemd gave it up" if failed and seen["state"] == "failed" else ""
        why = why or ("it ended %d times" % crashes if crashes >= CRASHES else "")
        if why:
            why += " within %d s" % passed
            break
        failed = seen["state"] == "failed"
    if seconds and seen["ready"] and invocation == not_before:
        seen["ready"], seen["waiting_for"] = False, "restart"
    return seen, invocation, why


def settle(module: AnsibleModule, seen: dict, why: str, owed: str) -> Optional[str]:
    """What a wait that was asked for ends with: None, or why the service is not ready. `owed` is the restart that it waited for."""
    if seen["ready"]:
        alone.or_fail(module, "rke2_status")
        pending.clear(owed)
        return None
    service, ended = module.params["service"], why or "not ready after %d s" % module.params["ready_seconds"]
    _, log, _ = module.run_command(["journalctl", "--unit", service, "--lines", LOG_LINES, "--no-pager", "--output", "cat"])
    return "%s is %s: %s (%s): %s" % (service, seen["state"], ended, seen["waiting_for"], log.strip()[-600:])


def measured(writes: int, check_mode: bool) -> dict:
    """What etcd says of itself, once it has written its log so often: the gate would not believe fewer. A young member waits."""
    found: dict = {}
    for _ in waiting.rounds(0 if check_mode else WRITES_SECONDS, most=waiting.FIRST):
        found = rke2metrics.etcd()
        if rke2metrics.writes(found) >= writes:
            break
    return found


SPEC: dict = {
    "service": {"type": "str", "required": True, "choices": ["rke2-server", "rke2-agent"]},
    "wanted": {"type": "str", "default": ""},
    "servers": {"type": "dict", "default": {}},
    "ready_seconds": {"type": "int", "default": 0},
    "not_before": {"type": "str", "default": ""},
    "kubeconfig_address": {"type": "str", "default": ""},
    "address": {"type": "str", "default": ""},
    "ping": {"type": "list", "elements": "str", "default": []},
    "rolled_back": {"type": "str", "default": ""},
    "restored": {"type": "str", "default": ""},
    "etcd_writes": {"type": "int", "default": 0},
}


def own_node_address(module: AnsibleModule, address: str, joined: bool) -> str:
    """The address where it is the host's own, and nobody has named another for its node."""
    try:
        return own_address.of_node(address, joined, lambda command: module.run_command(command, handle_exceptions=True))
    except own_address.Unreadable as error:
        module.fail_json(msg="this host does not tell its addresses: %s" % error)


def main() -> None:
    """Read, and wait if asked to."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    asked: dict[str, Any] = module.params
    owed = pending.seen()
    seen, invocation, why = wait(module, asked["service"], asked["ready_seconds"], asked["not_before"])
    if asked["service"] == "rke2-server" and seen["ready"]:
        seen["secrets_encryption"] = encryption(module)
        seen["etcd_seen"] = measured(asked["etcd_writes"], module.check_mode)
    if seen["ready"] and asked["kubeconfig_address"]:
        seen.update(secrets(asked["kubeconfig_address"]))
    seen.update({name: asked[name] for name in ("rolled_back", "restored") if asked[name]})
    refused = refusals.of_role(module, asked["service"]) if asked["wanted"] else ""
    result = {
        "changed": False,
        "observation": seen,
        "architecture": platform.machine(),
        "refusal": refusals.of(seen, asked["wanted"], asked["servers"]) or refused,
        "adopted": refusals.is_theirs(seen),
        "start": invocation,
        "pending": pending.is_there(),
        "half": kept.is_replacing(),
        "cleared": rollback.is_cleared(seen["version"]),
        "server": settings.find("server"),
        "own_address": own_node_address(module, asked["address"], seen["joined"]),
        "pings": "" if seen["joined"] else supervisor.answering(asked["ping"]),
    }
    if seen["ready"] and not asked["ready_seconds"] and not module.check_mode and pending.restarted(module):
        pending.clear(owed)  # the run that waited for this start was killed
    lack = settle(module, seen, why, owed) if asked["ready_seconds"] and not module.check_mode else None
    if lack:
        module.fail_json(msg=lack, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
