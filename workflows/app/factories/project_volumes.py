"""Volumes of a factory's projects, and where their bytes lie: a rebuild loses those on its machines, and keeps those elsewhere.

Volumes without a claim count too if their policy is to retain the bytes. The objects of a claim are compared by
`unplanned_objects`; what is in a volume, no object tells. Facts about sizes: steps/docs/facts/cluster_objects.md.
"""

import fnmatch
import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Protocol, TypeVar
from urllib.parse import quote

from msgspec import Struct, field

from steps.contract import plain_text
from steps.errors import StepError
from workflows.app.factories import factory_network
from workflows.app.factories.factory_network import FactoryNetwork, ObjectLists, Resolver, host_addresses
from workflows.spec import FactorySpec
from workflows.spec.pipelines.factory_spec import RESERVED, SYSTEM_SPACES

_CLAIMS, _VOLUMES, _NODES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes", "/api/v1/nodes"
_WORK: Final = frozenset({"Pod", "Workflow"})
"""Kinds of owners with which a claim ends, as their work does."""
_GIB: Final = 1 << 30
_PREFIX: Final = "volumes/"
_SHARED_FILE_SYSTEM: Final = ("local", "nfs")
"""Types of volumes of which kubelets measure the whole file system."""


T = TypeVar("T")


class ObjectReader(ObjectLists, Protocol):
    """Read access to objects of a factory's API, as a Kubernetes client has."""

    def get(self, path: str, kind: type[T]) -> T | None:
        """Return one object, None if it does not exist. Raises StepError."""


class Measure(Enum):
    """Part of a disk that a kubelet's figure about a volume is of."""

    VOLUME = "in use"
    FILE_SYSTEM = "in use on its whole file system"


class _ClaimReference(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _OwnerKind(Struct, frozen=True):
    kind: str = ""


class _ClaimMeta(Struct, frozen=True, rename="camel"):
    name: str
    namespace: str = ""
    owner_references: tuple[_OwnerKind, ...] = ()


class _ClaimRequests(Struct, frozen=True):
    requests: dict[str, Any] = {}


class _VolumeRequest(Struct, frozen=True, rename="camel"):
    volume_name: str = ""
    resources: _ClaimRequests = _ClaimRequests()


class LiveClaim(Struct, frozen=True):
    """A PersistentVolumeClaim of a factory as the API returns it."""

    metadata: _ClaimMeta
    spec: _VolumeRequest = _VolumeRequest()

    @property
    def key(self) -> tuple[str, str]:
        """Return namespace and name."""
        return self.metadata.namespace, self.metadata.name


class LiveVolume(Struct, frozen=True):
    """A PersistentVolume of a factory as the API returns it; its type is the name of one of its fields."""

    metadata: _ClaimMeta
    spec: dict[str, Any] = {}


class _NodeName(Struct, frozen=True):
    metadata: _ClaimMeta


class _VolumeFigures(Struct, frozen=True, rename="camel"):
    used_bytes: int | None = None
    pvc_ref: _ClaimReference | None = None


class _PodFigures(Struct, frozen=True):
    volumes: tuple[_VolumeFigures, ...] = field(default=(), name="volume")


class NodeSummary(Struct, frozen=True):
    """Figures of a kubelet's Summary API: the volumes of the pods that run on its node."""

    pods: tuple[_PodFigures, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ProjectVolume:
    """Bytes of a claim: where they lie, whether a rebuild leaves them there, and how many they are, if a kubelet knows.

    `retained` is the name of a PersistentVolume that keeps bytes without a claim; namespace and claim are then those that it had.
    """

    namespace: str
    claim: str
    place: str
    is_kept: bool
    requested: str = ""
    used: int | None = None
    measure: Measure = Measure.VOLUME
    retained: str = ""

    @property
    def name(self) -> str:
        """Return the name by which a spec means it: NAMESPACE/CLAIM, or that of a volume without a claim."""
        return self.retained or f"{self.namespace}/{self.claim}"

    @property
    def about(self) -> str:
        """Return its name, its place and its size."""
        if self.retained:
            claim = plain_text.line(f"{self.namespace}/{self.claim}")
            had = f"retained since claim {claim} was deleted" if self.claim else "retained without a claim"
            return f"{plain_text.line(self.retained)} ({self.place}, {had})"
        size = f"{self.used / _GIB:.1f} GiB {self.measure.value}" if self.used is not None else "size in use unknown"
        requested = f" of {plain_text.line(self.requested)} requested" if self.requested else ""
        return f"{plain_text.line(self.name)} ({self.place}, {size}{requested})"

    @property
    def sentence(self) -> str:
        """Return what a rebuild loses of it, as one line."""
        return f"only in the cluster: bytes in volume {self.about}; they are not saved, and not built again"


def read(spec: FactorySpec, kube: ObjectReader, resolve: Resolver = host_addresses) -> tuple[ProjectVolume, ...]:
    """Return the bound claims of a live factory's projects, and of namespaces that the spec lacks. Raises StepError.

    Volumes that retain bytes within the factory without a claim are among them. `resolve` returns the addresses of NFS servers. A
    kubelet that does not answer leaves sizes unknown.
    """
    every = kube.list(_CLAIMS, LiveClaim) or ()
    volumes = {volume.metadata.name: volume for volume in kube.list(_VOLUMES, LiveVolume) or ()}
    # only NFS needs it, and a dead name server answers late
    network = functools.cache(lambda: factory_network.read(spec, kube, functools.cache(resolve)))
    claimed = {claim.spec.volume_name for claim in every}
    retained = (_retained(volume, network) for name, volume in volumes.items() if name not in claimed)
    claims = [claim for claim in every if _holds_data(claim)]
    used = _used(kube) if claims else {}
    bound = (_volume(claim, volumes.get(claim.spec.volume_name), network, used) for claim in claims)
    return (*bound, *filter(None, retained))


def lost(spec: FactorySpec, volumes: Iterable[ProjectVolume]) -> Iterator[ProjectVolume]:
    """Yield the volumes whose bytes a rebuild loses: not kept, without a copy, and not brought back by the site."""
    copied = {copy.volume for copy in spec.rebuild.copies}
    return (item for item in volumes if not item.is_kept and item.name not in copied and not is_restored(spec, item))


def is_restored(spec: FactorySpec, volume: ProjectVolume) -> bool:
    """Return True if the spec says that the site brings the bytes back by itself, or needs them no more.

    A pattern that names no resource, such as `*/software/*`, was written for objects and gives up no bytes.
    """
    patterns = (pattern for pattern in spec.rebuild.restored if pattern.startswith(_PREFIX))
    return any(fnmatch.fnmatchcase(f"{_PREFIX}{volume.name}", pattern) for pattern in patterns)


def uncompared(spec: FactorySpec, volumes: Iterable[ProjectVolume]) -> Iterator[str]:
    """Yield whose bytes nobody compares: they stay elsewhere, the site restores them, or no file tells that it did.

    The shared folder of the spec is not named, because each project has it again after a rebuild.
    """
    copies = {copy.volume: copy for copy in spec.rebuild.copies}
    shared = f"NFS {spec.share.server}:{spec.share.path}" if spec.share else ""
    for item in volumes:
        copy = copies.get(item.name)
        if item.is_kept and item.place == shared:
            continue
        if item.is_kept:
            yield f"bytes in volume {item.about}, which lie outside of the factory"
        elif is_restored(spec, item):
            yield f"bytes in volume {item.about}, which the site brings back by itself"
        elif copy and not copy.restored:
            yield f"bytes in volume {item.about}, because rebuild.copies[].restored names no file that tells that they are back"


def _holds_data(claim: LiveClaim) -> bool:
    ends_with_work = any(owner.kind in _WORK for owner in claim.metadata.owner_references)
    return bool(claim.spec.volume_name) and _is_own(claim.metadata.namespace) and not ends_with_work


def _is_own(space: str) -> bool:
    """Return True for a namespace of users: all but those that a factory, Kubernetes and RKE2 make for themselves."""
    return space == "default" or (space not in RESERVED and not SYSTEM_SPACES.fullmatch(space))


def _retained(volume: LiveVolume, network: Callable[[], FactoryNetwork]) -> ProjectVolume | None:
    """Return a volume without a claim that keeps its bytes within the factory, or nobody knows where; None for all others."""
    spec = volume.spec
    reference = spec.get("claimRef") or {}
    space = str(reference.get("namespace") or "")
    if spec.get("persistentVolumeReclaimPolicy") != "Retain" or (space and not _is_own(space)):
        return None
    place, is_kept = _place(spec, network)
    if is_kept:
        return None
    claim, name = str(reference.get("name") or ""), volume.metadata.name
    return ProjectVolume(namespace=space, claim=claim, place=plain_text.line(place), is_kept=False, retained=name)


def _volume(
    claim: LiveClaim, volume: LiveVolume | None, network: Callable[[], FactoryNetwork], used: Mapping[tuple[str, str], int]
) -> ProjectVolume:
    spec = volume.spec if volume else {}
    place, is_kept = _place(spec, network)
    is_shared = any(kind in spec for kind in _SHARED_FILE_SYSTEM)
    return ProjectVolume(
        namespace=claim.metadata.namespace,
        claim=claim.metadata.name,
        place=plain_text.line(place),
        is_kept=is_kept,
        requested=str(claim.spec.resources.requests.get("storage", "")),
        used=used.get(claim.key),
        measure=Measure.FILE_SYSTEM if is_shared else Measure.VOLUME,
    )


def _place(spec: Mapping[str, Any], network: Callable[[], FactoryNetwork]) -> tuple[str, bool]:
    """Return where a volume's bytes lie, and True if that is known to be outside of the factory."""
    csi = spec.get("csi") or {}
    attributes = csi.get("volumeAttributes") or {}
    nfs = spec.get("nfs") or ({"server": attributes.get("server"), "path": attributes.get("share")} if _is_nfs(csi) else None)
    if nfs:
        server = str(nfs.get("server") or "")
        is_outside = network().is_outside(server)
        unknown = ", a server without an address here" if is_outside is None else ""
        return f"NFS {server}:{nfs.get('path')}{unknown}", bool(is_outside)
    if "local" in spec or "hostPath" in spec:
        node = _node(spec)
        return f"local path on {node}" if node else "path of a node", False
    if csi:
        return f"driver {csi.get('driver')}, of which nobody knows if it is outside", False
    return "a volume of a kind of which nobody knows if it is outside", False


def _is_nfs(csi: Mapping[str, Any]) -> bool:
    return csi.get("driver") == "nfs.csi.k8s.io"


def _node(spec: Mapping[str, Any]) -> str:
    """Return the node to which a volume is bound; empty if it does not tell."""
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or []
    rules = (rule for term in terms for rule in term.get("matchExpressions") or ())
    return next(
        (str(rule["values"][0]) for rule in rules if rule.get("key") == "kubernetes.io/hostname" and rule.get("values")), ""
    )


def _used(kube: ObjectReader) -> dict[tuple[str, str], int]:
    """Return claim → bytes in use, as the kubelets say for pods that run. A kubelet that does not answer tells nothing."""
    figures: dict[tuple[str, str], int] = {}
    for node in kube.list(_NODES, _NodeName) or ():
        try:
            summary = kube.get(f"{_NODES}/{quote(node.metadata.name, safe='')}/proxy/stats/summary", NodeSummary)
        except StepError:
            continue
        for pod in summary.pods if summary else ():
            for volume in pod.volumes:
                if volume.pvc_ref and volume.used_bytes is not None:
                    figures[volume.pvc_ref.namespace, volume.pvc_ref.name] = volume.used_bytes
    return figures
