"""Types for the fields of a Workflow that bringup reads, and access to its nodes, also if Argo has compressed them."""

import base64
import binascii
import datetime
import gzip
import io
from typing import Any

import msgspec
from msgspec import Struct

from workflows.engines.local.result import RunNodeStatus

API = "argoproj.io/v1alpha1"
CLUSTER, PIPELINE = "bringup/cluster", "bringup/pipeline"
PLAN, OWNER, REVISION, SUBMISSION = "bringup/plan", "bringup/owner", "bringup/revision", "bringup/submission"
CANCELLED = "bringup/cancelled"
"""Labels and annotations of a Workflow that bringup submitted."""
STARTS = "bringup/starts"
"""Label of a Workflow that only starts runs (see `render.starts`); its value is the pipeline of those runs."""

WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
NODE_NAME = "workflows.argoproj.io/node-name"
"""Keys that Argo sets on its pods: the label with the Workflow's name, and the annotation with the node's full name."""

UNFINISHED = frozenset({"", "Pending", "Running"})
"""Phases of a Workflow or node that has not ended. A Workflow that waits for a mutex is Pending."""

MOST_NODES_BYTES = 64 << 20
"""Largest decompressed node status that is accepted. 1 MiB compressed holds some 20,000 nodes of about 800 bytes each."""
_GZIP = b"\x1f\x8b"


class UnreadableStatus(ValueError):
    """Exception: the node status of a Workflow is stored in a form that only Argo's own server can read, or is damaged."""


class OwnerReference(Struct, frozen=True, rename="camel"):
    """A reference to the owner of an object: Kubernetes deletes the object once the owner is deleted."""

    api_version: str
    kind: str
    name: str
    uid: str


class ResourceMeta(Struct, frozen=True, rename="camel"):
    """The metadata of a Kubernetes object, reduced to the fields that are read here."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class Parameter(Struct, frozen=True):
    """An input or output parameter of a node."""

    name: str
    value: Any = None


class Parameters(Struct, frozen=True, rename="camel"):
    """The inputs or the outputs of a node, or the arguments of a Workflow."""

    parameters: tuple[Parameter, ...] = ()
    exit_code: str | None = None


class WorkflowNode(Struct, frozen=True, rename="camel"):
    """An entry of a Workflow's `status.nodes`: a task, an attempt, a group or a gate."""

    id: str
    name: str
    type: str
    display_name: str = ""
    phase: str = ""
    message: str = ""
    template_name: str = ""
    boundary_id: str = msgspec.field(default="", name="boundaryID")
    started_at: str | None = None
    finished_at: str | None = None
    children: tuple[str, ...] = ()
    inputs: Parameters | None = None
    outputs: Parameters | None = None

    @property
    def finished(self) -> bool:
        """Return True if the node's phase is final: Succeeded, Failed, Error, Skipped or Omitted."""
        return self.phase not in UNFINISHED

    @property
    def is_open_gate(self) -> bool:
        """Return True if this is a suspend node that still waits for a person or its time-out."""
        return self.type == "Suspend" and self.phase == "Running"


class Waiter(Struct, frozen=True):
    """An entry of a Workflow's status about a lock that it waits for, with its holders.

    `mutex` and `semaphore` are written as `NAMESPACE/Mutex/NAME`.
    """

    mutex: str = ""
    semaphore: str = ""
    holder: str = ""
    holders: tuple[str, ...] = ()


class Locks(Struct, frozen=True):
    """The locks of one kind (mutex or semaphore) that a Workflow waits for."""

    waiting: tuple[Waiter, ...] = ()


class Synchronization(Struct, frozen=True):
    """The locks that a Workflow waits for, as its status lists them."""

    mutex: Locks | None = None
    semaphore: Locks | None = None


class WorkflowStatus(Struct, frozen=True, rename="camel"):
    """The status of a Workflow, as Argo's controller writes it."""

    phase: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    nodes: dict[str, WorkflowNode] | None = None
    compressed_nodes: str = ""
    offload_node_status_version: str = ""
    synchronization: Synchronization | None = None


class TemplateRef(Struct, frozen=True):
    """A reference to the WorkflowTemplate that a Workflow runs."""

    name: str = ""


class SubmittedSpec(Struct, frozen=True, rename="camel"):
    """The spec of a Workflow as submitted, with `shutdown` and `suspend` as operators set them later."""

    workflow_template_ref: TemplateRef | None = None
    arguments: Parameters = Parameters()
    shutdown: str = ""
    suspend: bool = False


class Workflow(Struct, frozen=True):
    """A Workflow of Argo, which is one run of bringup."""

    metadata: ResourceMeta
    spec: SubmittedSpec = SubmittedSpec()
    status: WorkflowStatus = WorkflowStatus()

    @property
    def finished(self) -> bool:
        """Return True if the run's phase is final: Succeeded, Failed, Error, or GONE of a stand-in."""
        return self.status.phase not in UNFINISHED

    def argument(self, name: str) -> str:
        """Return the value of a parameter that the run was submitted with, or `none` if it has no such parameter."""
        values = (parameter.value for parameter in self.spec.arguments.parameters if parameter.name == name)
        return _text(next(values, None)) or "none"

    @property
    def as_owner(self) -> OwnerReference:
        """Return a reference to this Workflow for objects that are deleted with it."""
        return OwnerReference(api_version=API, kind="Workflow", name=self.metadata.name, uid=self.metadata.uid)

    @property
    def template(self) -> str:
        """Return the name of the run's WorkflowTemplate, or "" if it has none."""
        return self.spec.workflow_template_ref.name if self.spec.workflow_template_ref else ""

    def nodes(self) -> dict[str, WorkflowNode]:
        """Return all nodes by id; empty before the run begins. Raises UnreadableStatus."""
        status = self.status
        if status.compressed_nodes:
            return msgspec.json.decode(decompress_nodes(status.compressed_nodes), type=dict[str, WorkflowNode])
        if status.offload_node_status_version and not status.nodes:
            raise UnreadableStatus(
                f"Argo keeps the nodes of {self.metadata.name} in its database (nodeStatusOffLoad); turn that off"
            )
        return status.nodes or {}


def decompress_nodes(text: str) -> bytes:
    """Return the node status in JSON from `status.compressedNodes` (base64 of gzip). Raises UnreadableStatus."""
    try:
        packed = base64.b64decode(text, validate=True)
        if not packed.startswith(_GZIP):
            raise UnreadableStatus(
                "Argo compresses its node status with another algorithm than gzip; set WORKFLOW_COMPRESSION_ALGORITHM"
            )
        with gzip.open(io.BytesIO(packed)) as stream:
            data = stream.read(MOST_NODES_BYTES + 1)
    except (binascii.Error, OSError, EOFError) as error:
        raise UnreadableStatus(f"compressedNodes cannot be read: {error}") from error
    if len(data) > MOST_NODES_BYTES:
        raise UnreadableStatus(f"compressedNodes hold more than {MOST_NODES_BYTES} bytes")
    return data


def compress_nodes(data: bytes) -> str:
    """Return a node status in JSON as Argo stores it compressed: gzip, then base64."""
    return base64.b64encode(gzip.compress(data)).decode()


def seconds(stamp: str | None) -> float:
    """Return a time stamp of the Kubernetes API as seconds since the epoch; 0 for None."""
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() if stamp else 0.0


def stamp(moment: float) -> str:
    """Return seconds since the epoch as a time stamp of the Kubernetes API."""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_status(node: WorkflowNode, nodes: dict[str, WorkflowNode]) -> RunNodeStatus:
    """Return a node of a Workflow in the form in which the local engine reports its own nodes; `nodes` are all nodes by id."""
    boundary = nodes.get(node.boundary_id)
    return RunNodeStatus(
        node.name,
        node.display_name or node.name,
        node.type,
        node.phase,
        node.message,
        node.template_name,
        boundary.name if boundary else "",
        {parameter.name: _text(parameter.value) or "" for parameter in (node.inputs.parameters if node.inputs else ())},
        {parameter.name: _text(parameter.value) for parameter in (node.outputs.parameters if node.outputs else ())},
        int(node.outputs.exit_code) if node.outputs and node.outputs.exit_code else None,
        seconds(node.started_at),
        seconds(node.finished_at) or None,
        [nodes[child].name for child in node.children if child in nodes],
    )


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
