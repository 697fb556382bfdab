"""Keeps rehearsals off clusters in use: the simulator makes nodes and plays controllers in whatever it is pointed at."""

from pathlib import Path

import msgspec
import urllib3
from msgspec import Struct

from steps.errors import Unreachable
from workflows.rehearsal.simulator.api import Api, ApiError
from workflows.rehearsal.simulator.kinds import NODES
from workflows.rehearsal.simulator.rke2_nodes import SIMULATED

ALLOWED = "bringup/rehearsal"
"""Label by which the owner of a real node says that its cluster is for rehearsals."""


class ForeignCluster(ValueError):
    """The API server has nodes that are not this rehearsal's."""

    hint = f"rehearse against an API server of its own; label a test cluster's own nodes {ALLOWED}=allowed"


class NotAdmitted(ValueError):
    """The kubeconfig's user may not do what a simulator does."""

    hint = "a rehearsal plays all controllers: it takes a cluster admin's kubeconfig"


class _Meta(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def lent(self) -> bool:
        """Whether a simulator made it, or its owner lets it be used. Names prove nothing: the platform that the same spec built has
        the same."""
        return SIMULATED in self.annotations or self.labels.get(ALLOWED) == "allowed"


class _Node(Struct, frozen=True):
    metadata: _Meta


def check(kubeconfig: Path) -> None:
    """Raise ForeignCluster when the cluster has nodes other than simulated ones and those that are labelled for it.

    Raises Unreachable, NotAdmitted where it cannot be asked.
    """
    api = Api.from_kubeconfig(kubeconfig)
    try:
        found = [msgspec.json.decode(raw, type=_Node).metadata for raw in api.list(NODES) or ()]
    except urllib3.exceptions.HTTPError as error:
        why = getattr(error, "reason", None) or error
        raise Unreachable(
            f"the API server of {kubeconfig} does not answer: {why}", hint="is it up, and is its address right?"
        ) from error
    except ApiError as error:
        raise NotAdmitted(f"the API server of {kubeconfig} refuses to list nodes: {error}") from error
    finally:
        api.close()
    strangers = sorted(node.name for node in found if not node.lent)
    if strangers:
        raise ForeignCluster(f"{kubeconfig} leads to a cluster with nodes of its own: {', '.join(strangers[:5])}")
