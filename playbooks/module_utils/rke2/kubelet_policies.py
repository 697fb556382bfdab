"""Check of the kubelet's CPU and memory policies. A kubelet does not start if a checkpoint of another policy exists.

A change of policy takes a drained node, a stopped kubelet and no checkpoint (kubernetes.io, "Control CPU Management Policies").
"""

from __future__ import annotations

import os
import re

from ansible.module_utils import atomic_files

FOLDER = "/var/lib/kubelet"
POLICIES = (
    ("cpu-manager-policy", "cpuManagerPolicy", "none", "cpu_manager_state"),
    ("memory-manager-policy", "memoryManagerPolicy", "None", "memory_manager_state"),  # with a capital letter, as Kubernetes has it
)
"""For each policy: the kubelet's flag, the field of KubeletConfiguration, the default value, and the checkpoint's file name."""


def refusal(arguments: list, fields: str, before: str, folder: str = FOLDER) -> str:
    """Return why the kubelet would not start with these `arguments` (`flag=value`) and drop-in text `fields`; empty if it would.

    `before` is the text of our previous files. A policy that neither sets is somebody else's and is not judged.
    """
    for flag, field, default, name in POLICIES:
        path = os.path.join(folder, name)
        wanted = _policy(flag, field, "\n".join(arguments), fields) or (default if _policy(flag, field, before, before) else "")
        checkpoint = atomic_files.read_json(path)
        present = str(checkpoint.get("policyName", "")) if isinstance(checkpoint, dict) else ""
        if wanted and present and wanted != present:
            message = "kubelet: %s was %s here, and with %s it would not start: drain the node, stop RKE2 there and remove %s first"
            return message % (field, present, wanted, path)
    return ""


def _policy(flag: str, field: str, arguments: str, fields: str) -> str:
    """Return a policy's value from kubelet flags or a KubeletConfiguration, of which the flag wins; empty if neither sets it."""
    match = re.search(r"^[ \t-]*['\"]?%s=(\w+)" % flag, arguments, re.MULTILINE)
    match = match or re.search(r"^%s:[ \t]*['\"]?(\w+)" % field, fields, re.MULTILINE)
    return match.group(1) if match else ""
