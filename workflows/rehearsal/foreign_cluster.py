"""Protection of clusters in use against rehearsals, because a simulator creates nodes and plays controllers in its API server."""

from collections.abc import Iterable
from pathlib import Path

import msgspec
import urllib3
from msgspec import Struct

from steps.errors import Garbled, Unreachable
from workflows.rehearsal.simulator.api.api_client import Api, SimulatorApiError
from workflows.rehearsal.simulator.api.api_kinds import NAMESPACES, NODES, ObjectKind
from workflows.rehearsal.simulator.controllers.node_objects import SIMULATED
from workflows.render.rbac import BUILT_IN

LENT_LABEL = "bringup/rehearsal"
"""The label that the owner of a real cluster sets to `allowed` on its nodes and namespaces to allow rehearsals."""


class ForeignCluster(ValueError):
    """Raised if the API server has nodes (or, without any node, namespaces) whose owner did not allow rehearsals."""

    hint = f"use an API server made for rehearsals, or label all nodes and namespaces of a test cluster {LENT_LABEL}=allowed"


class UsedCluster(ValueError):
    """Raised if the API server still holds simulated nodes of an earlier rehearsal.

    A rehearsal begins with bare machines. It would judge old objects together with its own: as foreign objects if another spec made
    them, as work already done if the same spec did.
    """

    hint = (
        "each rehearsal begins with bare machines: name a new API server, or empty the etcd of this one (nothing else cleans it up)"
    )


class MissingRights(ValueError):
    """Raised if the user of the kubeconfig may not do what a simulator has to do."""

    hint = "a rehearsal plays all controllers and therefore needs a cluster admin's kubeconfig"


class _AnnotatedMeta(Struct, frozen=True):
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}

    @property
    def simulated(self) -> bool:
        """Return True if a simulator created the object, which its annotation says.

        Its name would prove nothing: a real platform built by the same spec has nodes of the same names.
        """
        return SIMULATED in self.annotations

    @property
    def lent(self) -> bool:
        """Return True if the object's label says that its owner allows rehearsals."""
        return self.labels.get(LENT_LABEL) == "allowed"


class _Object(Struct, frozen=True):
    metadata: _AnnotatedMeta


def check_unused_cluster(kubeconfig: Path) -> None:
    """Return if a rehearsal may use the cluster; raise ForeignCluster or UsedCluster otherwise.

    Its nodes decide. Only if it has none do its namespaces, because a control plane may be in use without nodes. Raises
    Unreachable, Garbled or MissingRights if the API server cannot be read.
    """
    api = Api.from_kubeconfig(kubeconfig)
    try:
        nodes = _all(api, NODES)
        spaces = () if nodes else _all(api, NAMESPACES)
    except urllib3.exceptions.HTTPError as error:
        why = getattr(error, "reason", None) or error
        raise Unreachable(
            f"the API server of {kubeconfig} does not answer: {why}", hint="check that it runs and that its address is right"
        ) from error
    except SimulatorApiError as error:
        raise MissingRights(f"the API server of {kubeconfig} refuses to list nodes and namespaces: {error}") from error
    except msgspec.MsgspecError as error:
        hint = "a proxy or load balancer on the way may answer in place of the API server"
        raise Garbled(f"the server of {kubeconfig} does not answer like an API server: {error}", hint=hint) from error
    finally:
        api.close()
    if strangers := _names(node for node in nodes if not (node.simulated or node.lent)):
        raise ForeignCluster(f"the cluster of {kubeconfig} has real nodes that are not lent for rehearsals: {strangers}")
    if simulated := _names(node for node in nodes if node.simulated):
        raise UsedCluster(f"the cluster of {kubeconfig} still holds simulated nodes of another rehearsal: {simulated}")
    if strangers := _names(space for space in spaces if not (space.name in BUILT_IN or space.lent)):
        raise ForeignCluster(
            f"the cluster of {kubeconfig} has no nodes, but namespaces that are not lent for rehearsals: {strangers}"
        )


def _all(api: Api, kind: ObjectKind) -> tuple[_AnnotatedMeta, ...]:
    return tuple(msgspec.json.decode(raw, type=_Object).metadata for raw in api.list(kind) or ())


def _names(objects: Iterable[_AnnotatedMeta]) -> str:
    """Return the first five names in alphabetical order, separated by commas; empty if there are none."""
    return ", ".join(sorted(meta.name for meta in objects)[:5])
