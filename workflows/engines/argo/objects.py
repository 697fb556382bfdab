"""A Workflow as the API server shows it: the few fields that matter, and its nodes, also where Argo has compressed them."""

import base64
import binascii
import datetime
import gzip
import io
from typing import Any

import msgspec
from msgspec import Struct

from workflows.engines.local.result import NodeStatus

API = "argoproj.io/v1alpha1"
CLUSTER, PIPELINE = "bringup/cluster", "bringup/pipeline"
PLAN, OWNER, REVISION, SUBMISSION = "bringup/plan", "bringup/owner", "bringup/revision", "bringup/submission"
CANCELLED = "bringup/cancelled"
"""Labels and annotations of a Workflow of ours."""
STARTS = "bringup/starts"
"""Label of a Workflow that only starts runs (`render.starts`): the pipeline of those."""

WORKFLOW_LABEL = "workflows.argoproj.io/workflow"
NODE_NAME = "workflows.argoproj.io/node-name"
"""What Argo writes on its pods: the label with the Workflow's name, the annotation with the node's full name."""

UNFINISHED = frozenset({"", "Pending", "Running"})
"""Phases of a Workflow or node that has not ended; a Workflow that waits for a mutex is Pending (hera_argo §1.3)."""

MOST_NODES_BYTES = 64 << 20
"""Decompressed node status: 1 MiB compressed holds some 20,000 nodes of 800 bytes (hera_argo §2.2)."""
_GZIP = b"\x1f\x8b"


class Unreadable(ValueError):
    """The status of a Workflow is kept in a form that only Argo's own server can read."""


class Owner(Struct, frozen=True, rename="camel"):
    """What an object ends with: Kubernetes deletes it when that is gone."""

    api_version: str
    kind: str
    name: str
    uid: str


class Meta(Struct, frozen=True, rename="camel"):
    """Identity, version, and what is written beside an object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[Owner, ...] = ()


class Parameter(Struct, frozen=True):
    """An input or output parameter of a node."""

    name: str
    value: Any = None


class Parameters(Struct, frozen=True, rename="camel"):
    """Inputs or outputs of a node."""

    parameters: tuple[Parameter, ...] = ()
    exit_code: str | None = None


class Node(Struct, frozen=True, rename="camel"):
    """One entry of `status.nodes`."""

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
        """Whether nothing more happens to it."""
        return self.phase not in UNFINISHED

    @property
    def is_open_gate(self) -> bool:
        """A suspend node that waits for a person."""
        return self.type == "Suspend" and self.phase == "Running"


class Waiter(Struct, frozen=True):
    """A lock that is waited for or held; `mutex` and `semaphore` are `NAMESPACE/Mutex/NAME`."""

    mutex: str = ""
    semaphore: str = ""
    holder: str = ""
    holders: tuple[str, ...] = ()


class Locks(Struct, frozen=True):
    """Locks of one kind."""

    waiting: tuple[Waiter, ...] = ()


class Synchronization(Struct, frozen=True):
    """Locks of a Workflow."""

    mutex: Locks | None = None
    semaphore: Locks | None = None


class Status(Struct, frozen=True, rename="camel"):
    """What the controller says."""

    phase: str = ""
    message: str = ""
    started_at: str | None = None
    finished_at: str | None = None
    nodes: dict[str, Node] | None = None
    compressed_nodes: str = ""
    offload_node_status_version: str = ""
    synchronization: Synchronization | None = None


class TemplateRef(Struct, frozen=True):
    """The WorkflowTemplate that a Workflow runs."""

    name: str = ""


class Spec(Struct, frozen=True, rename="camel"):
    """What was submitted, and what an operator set since."""

    workflow_template_ref: TemplateRef | None = None
    arguments: Parameters = Parameters()
    shutdown: str = ""
    suspend: bool = False


class Workflow(Struct, frozen=True):
    """One run on Argo."""

    metadata: Meta
    spec: Spec = Spec()
    status: Status = Status()

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.status.phase not in UNFINISHED

    def argument(self, name: str) -> str:
        """A parameter that it was submitted with; `none` where it was not."""
        return next((_text(one.value) or "none" for one in self.spec.arguments.parameters if one.name == name), "none")

    @property
    def as_owner(self) -> Owner:
        """For what ends with it."""
        return Owner(api_version=API, kind="Workflow", name=self.metadata.name, uid=self.metadata.uid)

    @property
    def template(self) -> str:
        """Name of its WorkflowTemplate."""
        return self.spec.workflow_template_ref.name if self.spec.workflow_template_ref else ""

    def nodes(self) -> dict[str, Node]:
        """All nodes by id. Raises Unreadable."""
        status = self.status
        if status.compressed_nodes:
            return _nodes(unpacked(status.compressed_nodes))
        if status.offload_node_status_version and not status.nodes:
            raise Unreadable(f"Argo keeps the nodes of {self.metadata.name} in its database (nodeStatusOffLoad); turn that off")
        return status.nodes or {}


def _nodes(data: bytes) -> dict[str, Node]:
    return msgspec.json.decode(data, type=dict[str, Node])


def unpacked(text: str) -> bytes:
    """The JSON of `status.compressedNodes`: base64 of gzip. Raises Unreadable."""
    try:
        packed = base64.b64decode(text, validate=True)
        if not packed.startswith(_GZIP):
            raise Unreadable("Argo compresses its node status with another algorithm than gzip; set WORKFLOW_COMPRESSION_ALGORITHM")
        with gzip.open(io.BytesIO(packed)) as stream:
            data = stream.read(MOST_NODES_BYTES + 1)
    except (binascii.Error, OSError, EOFError) as error:
        raise Unreadable(f"compressedNodes cannot be read: {error}") from error
    if len(data) > MOST_NODES_BYTES:
        raise Unreadable(f"compressedNodes hold more than {MOST_NODES_BYTES} bytes")
    return data


def packed(data: bytes) -> str:
    """The opposite of `unpacked`, as Argo writes it."""
    return base64.b64encode(gzip.compress(data)).decode()


def seconds(stamp: str | None) -> float:
    """A time stamp of the API as seconds since the epoch; 0 for none."""
    return datetime.datetime.fromisoformat(stamp.replace("Z", "+00:00")).timestamp() if stamp else 0.0


def stamp(moment: float) -> str:
    """Seconds since the epoch as the API writes them."""
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node_status(node: Node, nodes: dict[str, Node]) -> NodeStatus:
    """A node in the form in which the embedded engine tells of its own."""
    boundary = nodes.get(node.boundary_id)
    return NodeStatus(
        node.name,
        node.display_name or node.name,
        node.type,
        node.phase,
        node.message,
        node.template_name,
        boundary.name if boundary else "",
        {one.name: _text(one.value) or "" for one in (node.inputs.parameters if node.inputs else ())},
        {one.name: _text(one.value) for one in (node.outputs.parameters if node.outputs else ())},
        int(node.outputs.exit_code) if node.outputs and node.outputs.exit_code else None,
        seconds(node.started_at),
        seconds(node.finished_at) or None,
        [nodes[child].name for child in node.children if child in nodes],
    )


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
