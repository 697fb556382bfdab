"""Faults of stage os_prep."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="hosts_unreachable",
        stage="os_prep",
        gate="os_prep/nodes",
        node="agents:2",
        summary="Two machines do not answer to SSH.",
        caught_by="Their outcome is unreachable; machines without facts have not passed.",
    ),
    Fault(
        name="nouveau_loaded",
        stage="os_prep",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="nouveau holds the GPUs of two machines and cannot be unloaded: NVIDIA's driver will not load.",
        caught_by="The fact nouveau_loaded is true although the module is blacklisted by now.",
    ),
    Fault(
        name="host_driver_conflict",
        stage="os_prep",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="The image of two machines brings an NVIDIA driver, and the GPU Operator is to install one too.",
        caught_by="driver_installed is true on a host where driver.enabled is true (gpu_stack §9 P05).",
    ),
    Fault(
        name="disk_full",
        stage="os_prep",
        gate="os_prep/nodes",
        node="agents:2",
        summary="Two machines have 9 GiB left where container images need 40.",
        caught_by="Item `disk /var/lib/rancher` failed.",
    ),
    Fault(
        name="clock_skew",
        stage="os_prep",
        gate="os_prep/nodes",
        node="agents:2",
        summary="The clocks of two machines are 37 s ahead, while their time service claims to be synchronized.",
        caught_by="Their clock lies outside of the controller's readings before and after.",
    ),
    Fault(
        name="kernel_parameter_lost",
        stage="os_prep",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="Two machines boot with another menu than the one that was written: after the reboot they lack iommu=pt.",
        caught_by="Item `kernel parameter iommu=pt` is read from /proc/cmdline after the reboot.",
    ),
    Fault(
        name="acs_on",
        stage="os_prep",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="A bridge in each of two machines keeps PCIe ACS on: traffic between its GPU and NIC goes by the root complex.",
        caught_by="Item `PCIe ACS` is read from the bridges' configuration space after the change.",
    ),
    Fault(
        name="fabric_mtu",
        stage="os_prep",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="The fabric interfaces of two machines refuse the MTU of the others.",
        caught_by="Item `MTU of INTERFACE` is read again after the change.",
        needs="fabric.mtu=9000",
    ),
    Fault(
        name="reboot_hangs",
        stage="os_prep",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="Two machines do not come back from the reboot for their kernel's command line.",
        caught_by="The reboot's time runs out; the facts from before it do not count, since the play did not reach its end.",
    ),
)
