"""Types of stage factory_registry: observations of the registry and of pushes and pulls, and the expectations of its gates."""

from msgspec import Struct

from steps.contract.objects.charts import Trouble, Workload
from steps.contract.objects.checks import CheckPod


class RegistryClaim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The volume claim of the registry. Its `events` are read only while it is not bound."""

    phase: str = ""
    volume: str = ""
    events: tuple[str, ...] = ()


class RegistryPort(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A port of the registry's Service, with the port on every node that leads to it; 0 if there is none."""

    port: int
    node_port: int = 0


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_registry/control: the registry's Deployment, claim and Service, and why pods are not ready."""

    workload: Workload | None = None
    claim: RegistryClaim | None = None
    ports: tuple[RegistryPort, ...] = ()
    trouble: tuple[Trouble, ...] = ()


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_registry/control: the image that runs, the claim that is bound, and the Service's ports."""

    image: str
    claim: str
    port: int
    node_port: int


class NodePull(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An image of the registry that a node pulled for a pod of the check, and ran.

    `image_id` is what the kubelet reports of its container (`NAME@DIGEST`), empty before there is one. `exit_code` is -1 until the
    container has ended.
    """

    pod: CheckPod
    image_id: str = ""
    exit_code: int = -1


class FunctionalObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_registry/functional: the pods of check `registry`.

    Each reports `wanted` (what the artefact holds), `pushed` and `image` (digests of the artefact's and the image's manifest, if it
    pushes), `pulled` and `error`. `pulls` are the same pods by their main container, whose image the registry has.
    """

    pods: tuple[CheckPod, ...] = ()
    pulls: tuple[NodePull, ...] = ()


class FunctionalExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_registry/functional: one pod pushed, and each of `nodes` pulled the artefact and `image`.

    `image` is the name by which nodes pull.
    """

    nodes: tuple[str, ...] = ()
    image: str
