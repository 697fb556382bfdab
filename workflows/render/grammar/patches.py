"""The one patch of pods that a manifest may have: it takes rights away from the containers that Argo adds to each.

Argo gives them nothing of what the restricted level of Pod Security asks of every container (workflowpod.go of 4.1.2), unless its
own ConfigMap says so in `executor.securityContext`: without this no pod is admitted there.
"""

import json

_ASKED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ARGOS_CONTAINERS = json.dumps(
    {
        "initContainers": [{"name": "init", "securityContext": _ASKED}],
        "containers": [{"name": "wait", "securityContext": _ASKED}],
    }
)
