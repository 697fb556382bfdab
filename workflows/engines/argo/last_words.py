"""What the pods of a run said last: of those that ended well, which stay for a minute, by one LIST; of others their nodes tell."""

from steps.contract import last_word
from steps.contract.last_word import Said
from workflows.engines.argo import watchdog
from workflows.engines.argo.home import Home
from workflows.engines.argo.watchdog import Pod
from workflows.engines.local.result import NodeStatus

MAIN = "main"
"""Argo's name for the container that runs the task."""


def heard(home: Home, run: str) -> dict[str, Said]:
    """By the full name of the node. Raises Unreachable, Refused."""
    words = {node: _of(pod) for node, pod in watchdog.pods(home, run, "status.phase=Succeeded").items()}
    return {node: said for node, said in words.items() if said is not None}


def of_node(node: NodeStatus) -> Said | None:
    """What a node that failed repeats of its pod."""
    return last_word.of_node(node.message)


def _of(pod: Pod) -> Said | None:
    ends = (one.state.terminated for one in pod.status.container_statuses if one.name == MAIN)
    return next((last_word.read(end.message) for end in ends if end is not None), None)
