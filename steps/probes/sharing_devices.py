"""Reads DRA's ResourceSlices: which GPUs each node offers, from pools that are complete (gpu_stack §3.3)."""

from msgspec import Struct

from steps.probes.reader import KubeReader

DRIVER = "gpu.nvidia.com"


class Attribute(Struct, frozen=True):
    """A device attribute: one of its kinds."""

    string: str = ""
    version: str = ""


class Device(Struct, frozen=True):
    """A DRA device."""

    name: str = ""
    attributes: dict[str, Attribute] = {}


class Pool(Struct, frozen=True, rename="camel"):
    """Which pool a slice belongs to, and how many slices that has."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class SliceSpec(Struct, frozen=True, rename="camel"):
    """Spec of a ResourceSlice."""

    driver: str = ""
    node_name: str = ""
    pool: Pool = Pool()
    devices: tuple[Device, ...] = ()


class ResourceSlice(Struct, frozen=True):
    """A ResourceSlice."""

    spec: SliceSpec = SliceSpec()


def by_node(kube: KubeReader) -> dict[str, tuple[Device, ...]]:
    """Devices of type `gpu` by node, of pools that are complete in their newest generation."""
    newest: dict[tuple[str, str], list[SliceSpec]] = {}
    for found in kube.list("/apis/resource.k8s.io/v1/resourceslices", ResourceSlice) or ():
        spec = found.spec
        if spec.driver != DRIVER or not spec.node_name:
            continue
        known = newest.setdefault((spec.node_name, spec.pool.name), [])
        if known and known[0].pool.generation > spec.pool.generation:
            continue
        if known and known[0].pool.generation < spec.pool.generation:
            known.clear()
        known.append(spec)
    pools: dict[str, tuple[Device, ...]] = {}
    for (node, _), slices in newest.items():
        if len(slices) >= slices[0].pool.resource_slice_count:
            pools[node] = pools.get(node, ()) + tuple(device for one in slices for device in one.devices if _is_gpu(device))
    return pools


def _is_gpu(device: Device) -> bool:
    return device.attributes.get("type", Attribute()).string == "gpu"


def driver_versions(devices: tuple[Device, ...]) -> tuple[str, ...]:
    """The driver versions that devices report, each once."""
    return tuple(sorted({device.attributes.get("driverVersion", Attribute()).version for device in devices} - {""}))
