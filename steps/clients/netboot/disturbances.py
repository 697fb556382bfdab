"""What each fault changes of a test boot, as data: the image, its script, the machine or the server."""

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from steps.clients.netboot.machine import Hardware
from steps.contract.image.booting import BootFault
from steps.contract.image.manifest import INITRD


class Disturbance(Struct, frozen=True, kw_only=True):
    """What is other than in a good boot. `root_share` of the root is served; after `gone_share` of it the server goes away;
    `kernel_file` is served for the kernel; the initrd is served without the files whose path in it matches `initrd_without`;
    `stranger`: the script is for another machine."""

    arguments: tuple[str, ...] = ()
    hardware: Hardware = Hardware()
    root_share: float = 1.0
    gone_share: float | None = None
    kernel_file: str = ""
    initrd_without: str = ""
    stranger: bool = False


NONE = Disturbance()

ALL: Mapping[BootFault, Disturbance] = MappingProxyType(
    {
        BootFault.TRUNCATED_ROOT: Disturbance(root_share=0.5),
        BootFault.WRONG_KERNEL: Disturbance(kernel_file=INITRD),
        # the driver of the card that every test machine has: the firmware can use it, and the kernel finds none
        BootFault.NO_NETWORK_DRIVER: Disturbance(initrd_without=r".*/virtio_net\.ko(\.\w+)?"),
        BootFault.SERVER_GONE: Disturbance(gone_share=0.5),
        BootFault.WRONG_MAC: Disturbance(stranger=True),
        # live-boot's overlay lies in a tmpfs
        BootFault.TMPFS_FULL: Disturbance(arguments=("overlay-size=512k",)),
        BootFault.WRONG_CLOCK: Disturbance(hardware=Hardware(clock="2038-01-01T00:00:00")),
        # live-boot mounts the squashfs itself, read-only
        BootFault.ROOT_NOT_OVERLAY: Disturbance(arguments=("exposedroot", "skipunion", "skipconfig")),
    }
)
