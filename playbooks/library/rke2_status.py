#!/usr/bin/python
"""Ansible module that reads the state of an RKE2 service on its own host and can wait in place until it is ready."""

from __future__ import annotations

import json
import os
import platform
import re
import socket
import sys
import time
from typing import Any, Callable, Optional

from ansible.module_utils import atomic_files, direct_http, host_lock, polling
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.rke2 import (
    etcd_metrics,
    kubectl,
    node_address,
    refusals,
    release_backup,
    restart_mark,
    rke2_mounts,
    rke2_settings,
    rollback,
    site_backups,
    supervisor,
)

DOCUMENTATION = r"""
module: rke2_status
short_description: Reads the state of an RKE2 server or agent on its host
description:
  - Returns the version of the installed binary, the state of the systemd unit, and whether the service is ready.
  - With C(ready_seconds) it polls on the host until the service is ready. It changes nothing except bringup's record of a pending
    restart, which it then removes.
options:
  service: {description: 'The systemd unit, rke2-server or rke2-agent.', type: str, required: true}
  wanted: {description: 'Release to install; C(refusal) then says why it cannot replace the installed one.', type: str}
  servers: {description: Version of every server by name; C(wanted) of an agent may not be newer., type: dict}
  ready_seconds: {description: Longest wait until the service is ready; 0 reads once and never fails., type: int}
  not_before: {description: Invocation ID of the unit before a restart; the service is ready only with another., type: str}
  kubeconfig_address: {description: 'Address for the returned kubeconfig; empty: return neither kubeconfig nor token.', type: str}
  address: {description: Address for SSH; C(own_address) returns it if it is the host's own and IPv4., type: str}
  ping: {description: 'Addresses of RKE2 supervisors to try; C(pings) returns the first that answers.', type: list, elements: str}
  rolled_back: {description: 'Release that was restored, copied to the observation.', type: str}
  restored: {description: 'Snapshot that etcd was restored from, copied to the observation.', type: str}
  etcd_writes: {description: 'Number of WAL writes before etcd''s metrics are read; waits 90 s for them.', type: int}
author: [bringup]
"""

RETURN = r"""
observation: {description: 'State of the service and the host; kubeconfig and token on request.', type: dict, returned: always}
architecture: {description: Machine architecture., type: str, returned: always}
adopted: {description: True if RKE2 was not set up by bringup., type: bool, returned: always}
refusal: {description: 'Why the wanted release cannot be installed; empty if it can.', type: str, returned: always}
start: {description: Invocation ID of the unit., type: str, returned: always}
pending: {description: True if a change needs a restart of RKE2., type: bool, returned: always}
cleared: {description: True if this server only has to join to complete a rollback., type: bool, returned: always}
half: {description: True if the installation of a release was interrupted., type: bool, returned: always}
server: {description: The server that the configuration joins., type: str, returned: always}
own_address:
  description: 'Value for node-ip; empty if C(address) is IPv6 or not the host''s own, or a drop-in file sets it.'
  type: str
  returned: always
pings: {description: 'The first given address where a supervisor answers; empty: none.', type: str, returned: always}
"""

BINARIES = ("/usr/local/bin/rke2", "/usr/bin/rke2", "/opt/rke2/bin/rke2")
KUBECONFIG = kubectl.KUBECONFIG
TOKEN = "/var/lib/rancher/rke2/server/token"
ETCD = "/var/lib/rancher/rke2/server/db/etcd"
JOINED = {"rke2-server": ETCD, "rke2-agent": "/var/lib/rancher/rke2/agent/kubelet.kubeconfig"}
"""Service → the path that has content once the host has joined a cluster. An empty folder is no proof: it may be etcd's disk."""
KUBELET = "http://127.0.0.1:10248/healthz"
LOCAL = "127.0.0.1"
CRASHES = 10
"""Number of restarts by systemd after which waiting ends. systemd restarts RKE2 after 5 s, so this is about a minute of crashes."""
WRITES_SECONDS = 90
"""Longest wait for etcd's writes, in seconds. The leases of an idle cluster alone make etcd write twice a second."""
LOG_LINES = "15"


def observe(module: AnsibleModule, service: str) -> tuple:
    """Return the fields of `HostFacts` without kubeconfig and token, and systemd's invocation id of the unit."""
    properties = unit(module, service)
    active = properties.get("ActiveState") == "active"
    joined = os.path.exists(JOINED[service]) and rke2_mounts.has_content(JOINED[service], [JOINED[service]])
    facts = {
        "service": service,
        "version": version(module),
        "state": properties.get("ActiveState", ""),
        "enabled": properties.get("UnitFileState") == "enabled",
        "joined": joined,
        "kept": release_backup.version_kept() or "",
        "aside": site_backups.backups(),
        "node_ip": rke2_settings.effective_value("node-ip"),
        "restarts": int(properties.get("NRestarts") or 0),
        **start_times(int(properties.get("ActiveEnterTimestampMonotonic") or 0)),
    }
    if service == "rke2-server":
        facts["supervisor"] = active and is_supervisor_ready()
        facts["etcd_healthy"] = active and etcd_health() if joined else None
    lacks = missing_state(facts, lambda: answers(module, service))
    if service == "rke2-server" and not lacks and module.params["ready_seconds"]:
        lacks = member(rke2_settings.effective_value("node-name") or socket.gethostname())
    facts["ready"], facts["waiting_for"] = not lacks, ", ".join(lacks)
    return facts, properties.get("InvocationID", "")


def missing_state(facts: dict, answering: Callable[[], bool]) -> list:
    """Return what keeps the observed service from being ready on its own host, such as `supervisor`; empty if it is ready."""
    if facts["state"] != "active":
        return ["unit %s" % (facts["state"] or "unknown")]
    lacks = [name for name in ("supervisor", "etcd_healthy") if facts.get(name) is False]
    return lacks + ([] if answering() else ["API server" if facts["service"] == "rke2-server" else "kubelet"])


def unit(module: AnsibleModule, service: str) -> dict:
    """Return systemd's properties of the RKE2 unit by name; an empty dict if systemctl fails."""
    wanted = "ActiveState,UnitFileState,NRestarts,ActiveEnterTimestampMonotonic,InvocationID"
    code, output, _ = module.run_command(["systemctl", "show", "--property=" + wanted, service])
    return dict(line.partition("=")[::2] for line in output.splitlines()) if code == 0 else {}


def start_times(microseconds: int) -> dict:
    """Return `started` (epoch seconds) and `up_seconds` of a unit; both 0 if it never became active.

    `microseconds` is systemd's monotonic time stamp, which a change of the wall clock does not move.
    """
    ago = time.monotonic() - microseconds / 1e6 if microseconds else 0.0
    return {"started": round(time.time() - ago, 3) if microseconds else 0.0, "up_seconds": round(ago, 3)}


def version(module: AnsibleModule) -> str:
    """Return the installed release: `rke2 version v1.35.7+rke2r1 (hash)` → `v1.35.7+rke2r1`. Empty if none is installed."""
    binary = find_binary()
    if not binary:
        return ""
    match = re.search(r"rke2 version (v\S+)", module.run_command([binary, "--version"], handle_exceptions=True)[1])
    return match.group(1) if match else ""


def find_binary() -> str:
    """Return the path of the RKE2 binary; empty if there is none."""
    return next((binary for binary in BINARIES if os.path.exists(binary)), "")


def is_supervisor_ready() -> bool:
    """Return True if the host's own supervisor is ready. A refused token or another cluster's CA also counts: both are answers."""
    token = atomic_files.read(TOKEN).rstrip("\n")
    return supervisor.state(LOCAL, token)[0] in (supervisor.PONG, supervisor.REFUSED, supervisor.STRANGER)


def etcd_health() -> bool:
    """Return True if the host's etcd member reports itself healthy; False if it does not answer."""
    try:
        return str(json.loads(etcd_metrics.fetch("/health")).get("health")) == "true"
    except ValueError:
        return False


def answers(module: AnsibleModule, service: str) -> bool:
    """Return True if the server's API server passes all readiness checks, or the agent's kubelet reports ok."""
    if service == "rke2-server":
        if not os.path.exists(kubectl.KUBECTL):
            return False
        command = [kubectl.KUBECTL, "--kubeconfig", KUBECONFIG, "--request-timeout=5s", "get", "--raw", "/readyz"]
        return module.run_command(command, handle_exceptions=True)[1].strip() == "ok"
    try:
        return direct_http.get(KUBELET).strip() == b"ok"
    except (OSError, ValueError):
        return False


def encryption(module: AnsibleModule) -> str:
    """Return `Enabled` or `Disabled` for RKE2's encryption of Secrets; empty if the rke2 command does not tell."""
    output = module.run_command([find_binary(), "secrets-encrypt", "status"], handle_exceptions=True)[1] if find_binary() else ""
    match = re.search(r"^Encryption Status:\s*(\w+)", output, re.MULTILINE)
    return match.group(1) if match else ""


def secrets(address: str) -> dict:
    """Return `kubeconfig` (admin, with `address` for 127.0.0.1) and `token` (with the CA's hash); missing files are left out."""
    kubeconfig, token = (atomic_files.read(path).rstrip("\n") for path in (KUBECONFIG, TOKEN))
    kubeconfig = kubeconfig.replace("https://127.0.0.1:6443", "https://%s:6443" % supervisor.host(address)) + "\n"
    return {name: text for name, text in (("kubeconfig", kubeconfig), ("token", token)) if text.strip()}


def member(name: str) -> list:
    """Return what a ready server lacks to be a full cluster member, in a list: its Node, its etcd vote, or an API that answers.

    etcd promotes one learner to a voter at a time.
    """
    try:
        node = kubectl.Kubectl().nodes([name]).get(name)
    except kubectl.KubectlError:
        return ["API server"]
    return ["its Node"] if node is None else ["etcd vote"] if node["voter"] is False else []


def wait(module: AnsibleModule, service: str, seconds: int, not_before: str) -> tuple:
    """Poll until the service is ready in another invocation than `not_before`, for at most `seconds`.

    Returns the last observation, the unit's invocation id, and why waiting ended early (systemd gave the unit up, or too many
    crashes; empty if the service is ready or time is up).
    """
    facts, invocation, why, before, failed = {}, "", "", sys.maxsize, False
    for passed in polling.attempts(0 if module.check_mode else seconds):
        facts, invocation = observe(module, service)
        if facts["ready"] and invocation != not_before:
            break
        before = min(before, facts["restarts"])
        crashes = facts["restarts"] - before
        # a unit that is to be started is still failed until systemd comes to it: what counts is the second look
        why = "systemd gave it up" if failed and facts["state"] == "failed" else ""
        why = why or ("it ended %d times" % crashes if crashes >= CRASHES else "")
        if why:
            why += " within %d s" % passed
            break
        failed = facts["state"] == "failed"
    if seconds and facts["ready"] and invocation == not_before:
        facts["ready"], facts["waiting_for"] = False, "restart"
    return facts, invocation, why


def settle(module: AnsibleModule, seen: dict, why: str, owed: str) -> Optional[str]:
    """Remove the restart mark `owed` and return None if the service is ready; else return why it is not, with its last log."""
    if seen["ready"]:
        host_lock.hold_or_fail(module, "rke2_status")
        restart_mark.clear(owed)
        return None
    service, ended = module.params["service"], why or "not ready after %d s" % module.params["ready_seconds"]
    _, log, _ = module.run_command(["journalctl", "--unit", service, "--lines", LOG_LINES, "--no-pager", "--output", "cat"])
    return "%s is %s: %s (%s): %s" % (service, seen["state"], ended, seen["waiting_for"], log.strip()[-600:])


def wait_for_metrics(writes: int, check_mode: bool) -> dict:
    """Return etcd's metrics once etcd has written its WAL `writes` times, as the gate needs, or after WRITES_SECONDS."""
    metrics: dict = {}
    for _ in polling.attempts(0 if check_mode else WRITES_SECONDS, most=polling.FIRST):
        metrics = etcd_metrics.read_etcd()
        if etcd_metrics.wal_writes(metrics) >= writes:
            break
    return metrics


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
    """Return the address for `node-ip`, empty if RKE2 is to choose. Fails the module if the host's addresses cannot be read."""
    try:
        return node_address.node_ip(address, joined, lambda command: module.run_command(command, handle_exceptions=True))
    except node_address.AddressesUnreadable as error:
        module.fail_json(msg="this host does not tell its addresses: %s" % error)


def main() -> None:
    """Read the service's state, wait for it if `ready_seconds` is set, and fail the module if it does not become ready."""
    module = AnsibleModule(argument_spec=SPEC, supports_check_mode=True)
    arguments: dict[str, Any] = module.params
    owed = restart_mark.read()
    seen, invocation, why = wait(module, arguments["service"], arguments["ready_seconds"], arguments["not_before"])
    if arguments["service"] == "rke2-server" and seen["ready"]:
        seen["secrets_encryption"] = encryption(module)
        seen["etcd_seen"] = wait_for_metrics(arguments["etcd_writes"], module.check_mode)
    if seen["ready"] and arguments["kubeconfig_address"]:
        seen.update(secrets(arguments["kubeconfig_address"]))
    seen.update({name: arguments[name] for name in ("rolled_back", "restored") if arguments[name]})
    refused = refusals.role_refusal(module, arguments["service"]) if arguments["wanted"] else ""
    result = {
        "changed": False,
        "observation": seen,
        "architecture": platform.machine(),
        "refusal": refusals.release_refusal(seen, arguments["wanted"], arguments["servers"]) or refused,
        "adopted": refusals.is_adopted(seen),
        "start": invocation,
        "pending": restart_mark.is_pending(),
        "half": release_backup.is_replacing(),
        "cleared": rollback.is_done(seen["version"]),
        "server": rke2_settings.effective_value("server"),
        "own_address": own_node_address(module, arguments["address"], seen["joined"]),
        "pings": "" if seen["joined"] else supervisor.first_answering(arguments["ping"]),
    }
    if seen["ready"] and not arguments["ready_seconds"] and not module.check_mode and restart_mark.has_restarted(module):
        restart_mark.clear(owed)  # the run that waited for this start was killed
    lack = settle(module, seen, why, owed) if arguments["ready_seconds"] and not module.check_mode else None
    if lack:
        module.fail_json(msg=lack, **result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
