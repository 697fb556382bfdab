"""Facts that must be equal on all nodes of a fleet, unless the spec lists them under `validation.may_differ` with a reason."""

from enum import StrEnum


class FleetFact(StrEnum):
    """A fact of a node by which a fleet is compared; the value is its name in a spec."""

    DRIVER = "driver"
    """Version of the GPU driver."""
    DRIVER_FLAVOUR = "driver_flavour"
    """Flavour of the driver's kernel module: open or proprietary."""
    CUDA = "cuda"
    """CUDA version that the driver offers."""
    KERNEL = "kernel"
    """Release of the running kernel."""
    VBIOS = "vbios"
    """Firmware of a GPU."""
    POWER_LIMIT = "power_limit"
    """Power that a GPU may draw."""
    NIC_FIRMWARE = "nic_firmware"
    """Firmware of an RDMA device, for each kind of board."""
