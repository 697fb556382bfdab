"""Whether the pods of a node have another node to go to.

Where they have none, a drain does no good: what it evicts waits for that node itself, and a budget that wants a pod to be there is
never met again, so that the node would keep its release for ever. RKE2 restarts in place, and leaves containers running.
"""

from __future__ import annotations

from typing import Iterable

from ansible.module_utils.rke2 import kube

STATE = "node.kubernetes.io/"
"""How the taints begin that Kubernetes itself sets by a node's state: no pod is there for tolerating them."""
CORDON = STATE + "unschedulable="
"""The one that comes with a cordon, which a Node says elsewhere too."""


def lone(nodes: dict, pages: Iterable) -> list:
    """Those of these nodes (name → facts) whose pods no other one takes. `pages` are all Nodes; no more are read than it takes.

    Of those that are drained together each counts for the others: they come back one after the other.
    """
    left = set(nodes)
    for page in pages:
        others = {one["metadata"]["name"]: kube.facts(one) for one in page}
        for name in sorted(left):
            if any(other != name and _takes(seen, nodes[name], other in nodes) for other, seen in others.items()):
                left.remove(name)
        if not left:
            break
    return sorted(left)


def _takes(other: dict, leaving: dict, drained_too: bool) -> bool:
    """Whether a node takes new pods, and keeps none away that are on the other: what is there tolerates the taints of there."""
    if not other["ready"] or (other["cordoned"] and not drained_too):
        return False
    tolerated = {taint for taint in leaving["taints"] if not taint.startswith(STATE)}
    return {taint for taint in other["taints"] if not taint.startswith(CORDON)} <= tolerated
