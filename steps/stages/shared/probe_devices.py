"""Reads ResourceSlices of Dynamic Resource Allocation (DRA): the GPUs that each node offers, from complete pools only.

Fields: https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/; attributes of NVIDIA's driver:
`steps/docs/facts/gpu.md`, Dynamic Resource Allocation.
"""

from msgspec import Struct

from steps.stages.shared.kube_reader import KubeReader

DRIVER = "gpu.nvidia.com"


class _Attribute(Struct, frozen=True):
    """A device attribute; one of the fields is set."""

    string: str = ""
    version: str = ""


class _Taint(Struct, frozen=True):
    """A taint of a device; its driver sets one for instance when the device is unhealthy."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Device(Struct, frozen=True):
    """A DRA device with its attributes and taints."""

    name: str = ""
    attributes: dict[str, _Attribute] = {}
    taints: tuple[_Taint, ...] = ()


class _DevicePool(Struct, frozen=True, rename="camel"):
    """The pool that a slice belongs to, with its generation and the number of its slices."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class _SliceSpec(Struct, frozen=True, rename="camel"):
    driver: str = ""
    node_name: str = ""
    pool: _DevicePool = _DevicePool()
    devices: tuple[Device, ...] = ()


class _ResourceSlice(Struct, frozen=True):
    spec: _SliceSpec = _SliceSpec()


def by_node(kube: KubeReader) -> dict[str, tuple[Device, ...]]:
    """Return the devices of type `gpu` by node, from pools that are complete in their newest generation."""
    newest: dict[tuple[str, str], list[_SliceSpec]] = {}
    for resource_slice in kube.list("/apis/resource.k8s.io/v1/resourceslices", _ResourceSlice) or ():
        spec = resource_slice.spec
        if spec.driver != DRIVER or not spec.node_name:
            continue
        known = newest.setdefault((spec.node_name, spec.pool.name), [])
        # slices of an older generation can remain while a driver publishes a new pool
        if known and known[0].pool.generation > spec.pool.generation:
            continue
        if known and known[0].pool.generation < spec.pool.generation:
            known.clear()
        known.append(spec)
    pools: dict[str, tuple[Device, ...]] = {}
    for (node, _), slices in newest.items():
        # an incomplete pool would count too few devices
        if len(slices) >= slices[0].pool.resource_slice_count:
            pools[node] = pools.get(node, ()) + tuple(device for part in slices for device in part.devices if _is_gpu(device))
    return pools


def _is_gpu(device: Device) -> bool:
    return device.attributes.get("type", _Attribute()).string == "gpu"


def versions(devices: tuple[Device, ...], attribute: str) -> tuple[str, ...]:
    """Return the versions that the devices report in an attribute (`driverVersion`, `cudaDriverVersion`), sorted, each once."""
    return tuple(sorted({device.attributes.get(attribute, _Attribute()).version for device in devices} - {""}))


def tainted(devices: tuple[Device, ...]) -> tuple[str, ...]:
    """Return `NAME: KEY=VALUE EFFECT` for each taint of the devices that keeps pods away, sorted."""
    taints = ((device.name, taint) for device in devices for taint in device.taints if taint.effect != "None")
    return tuple(sorted(f"{name}: {taint.key}={taint.value} {taint.effect}" for name, taint in taints))


def driver_versions(devices: tuple[Device, ...]) -> tuple[str, ...]:
    """Return the driver versions that the devices report, sorted, each once."""
    return versions(devices, "driverVersion")
