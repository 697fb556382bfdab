"""A kubelet's policies for CPUs and memory: it does not start where the checkpoint of another policy lies.

kubernetes.io, "Control CPU Management Policies": another policy takes a drained node, a stopped kubelet, and no checkpoint.
"""

from __future__ import annotations

import json
import os
import re

FOLDER = "/var/lib/kubelet"
POLICIES = (
    ("cpu-manager-policy", "cpuManagerPolicy", "none", "cpu_manager_state"),
    ("memory-manager-policy", "memoryManagerPolicy", "None", "memory_manager_state"),
)
"""The flag, the field of KubeletConfiguration, the value where neither is said, and the checkpoint's name."""


def refusal(arguments: list, fields: str, before: str, folder: str = FOLDER) -> str:
    """Why a kubelet would not start with these arguments (`flag=value`) and this drop-in; empty where it would. `before` is what
    our files said until now: a policy that they neither say nor said is somebody else's."""
    for flag, field, default, name in POLICIES:
        path = os.path.join(folder, name)
        wanted = _said(flag, field, "\n".join(arguments), fields) or (default if _said(flag, field, before, before) else "")
        now = _policy(path)
        if wanted and now and wanted != now:
            said = "kubelet: %s was %s here, and with %s it would not start: drain the node, stop RKE2 there and remove %s first"
            return said % (field, now, wanted, path)
    return ""


def _policy(checkpoint: str) -> str:
    """The policy of a checkpoint; empty where there is none."""
    try:
        with open(checkpoint) as source:
            return str(json.load(source).get("policyName", ""))
    except (OSError, ValueError, AttributeError):
        return ""


def _said(flag: str, field: str, arguments: str, fields: str) -> str:
    """A flag wins over KubeletConfiguration."""
    found = re.search(r"^[ \t-]*['\"]?%s=(\w+)" % flag, arguments, re.MULTILINE)
    found = found or re.search(r"^%s:[ \t]*['\"]?(\w+)" % field, fields, re.MULTILINE)
    return found.group(1) if found else ""
