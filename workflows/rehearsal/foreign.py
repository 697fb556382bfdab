"""Keeps rehearsals off clusters in use: the simulator makes nodes and plays controllers in whatever it is pointed at."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import urllib3
from msgspec import Struct

from steps.errors import Garbled, Unreachable
from workflows.rehearsal.simulator.api import Api, ApiError
from workflows.rehearsal.simulator.kinds import NAMESPACES, NODES, Kind
from workflows.rehearsal.simulator.rke2_nodes import SIMULATED
from workflows.render.rbac import BUILT_IN

ALLOWED = "bringup/rehearsal"
"""Label by which the owner of a real node or namespace says that its cluster is for rehearsals."""


class ForeignCluster(ValueError):
    """The API server has nodes, or without any node namespaces, of somebody who did not lend them."""

    hint = f"rehearse against an API server of its own; label a test cluster's own nodes and namespaces {ALLOWED}=allowed"


class UsedUp(ValueError):
    """The API server keeps what a rehearsal simulated. A rehearsal begins with bare machines: what is left would be judged with it,
    of another spec as a stranger's, of the same one as done already."""

    hint = (
        "each rehearsal begins with bare machines: name a new API server, or begin with an empty etcd there; nothing else cleans up"
    )


class NotAdmitted(ValueError):
    """The kubeconfig's user may not do what a simulator does."""

    hint = "a rehearsal plays all controllers: it takes a cluster admin's kubeconfig"


class _Meta(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def simulated(self) -> bool:
        """Whether a simulator made it. Names prove nothing: the platform that the same spec built has the same."""
        return SIMULATED in self.annotations

    @property
    def lent(self) -> bool:
        """Whether its owner lets it be used."""
        return self.labels.get(ALLOWED) == "allowed"


class _Object(Struct, frozen=True):
    metadata: _Meta


def check(kubeconfig: Path) -> None:
    """Raise ForeignCluster for a cluster that somebody uses, UsedUp for one in which was rehearsed.

    Nodes tell; where there is none, namespaces do: a control plane may be in use without nodes. Raises Unreachable, NotAdmitted
    where it cannot be asked.
    """
    api = Api.from_kubeconfig(kubeconfig)
    try:
        nodes = _all(api, NODES)
        spaces = () if nodes else _all(api, NAMESPACES)
    except urllib3.exceptions.HTTPError as error:
        why = getattr(error, "reason", None) or error
        raise Unreachable(
            f"the API server of {kubeconfig} does not answer: {why}", hint="is it up, and is its address right?"
        ) from error
    except ApiError as error:
        raise NotAdmitted(f"the API server of {kubeconfig} refuses to list nodes and namespaces: {error}") from error
    except msgspec.MsgspecError as error:
        hint = "something may stand between here and the API server (a proxy, a load balancer) and answer in its place"
        raise Garbled(f"what answers at the server of {kubeconfig} is no API server: {error}", hint=hint) from error
    finally:
        api.close()
    if strangers := _names(node for node in nodes if not (node.simulated or node.lent)):
        raise ForeignCluster(f"{kubeconfig} leads to a cluster with nodes of its own: {strangers}")
    if left := _names(node for node in nodes if node.simulated):
        raise UsedUp(f"{kubeconfig} leads to a cluster that keeps what another rehearsal simulates or simulated: nodes {left}")
    if strangers := _names(space for space in spaces if not (space.name in BUILT_IN or space.lent)):
        raise ForeignCluster(f"{kubeconfig} leads to a cluster without nodes, but with namespaces of its own: {strangers}")


def _all(api: Api, kind: Kind) -> tuple[_Meta, ...]:
    return tuple(msgspec.json.decode(raw, type=_Object).metadata for raw in api.list(kind) or ())


def _names(found: Iterable[_Meta]) -> str:
    """The first of them, sorted."""
    return ", ".join(sorted(one.name for one in found)[:5])
