"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage os_prep to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="hosts_unreachable",
        gate="os_prep/nodes",
        node="agents:2",
        summary="Two machines do not answer to SSH.",
        caught_by="The play reports both hosts as unreachable, and a host without facts does not pass.",
    ),
    Fault(
        name="nouveau_loaded",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="nouveau holds the GPUs of two machines and cannot be unloaded: NVIDIA's driver will not load.",
        caught_by="The fact nouveau_loaded is still true after the module was blacklisted.",
        source="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/",
    ),
    Fault(
        name="host_driver_conflict",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="The image of two machines contains an NVIDIA driver, although the GPU Operator is to install one.",
        caught_by="driver_installed is true on a host where driver.enabled is true.",
        source="https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html",
    ),
    Fault(
        name="disk_full",
        gate="os_prep/nodes",
        node="agents:2",
        summary="Two machines have 9 GiB left where container images need 40.",
        caught_by="The item `disk /var/lib/rancher` failed.",
    ),
    Fault(
        name="clock_skew",
        gate="os_prep/nodes",
        node="agents:2",
        summary="The clocks of two machines are 37 s ahead, while their time service claims to be synchronized.",
        caught_by="Their clock readings are outside the interval between the controller's readings before and after.",
    ),
    Fault(
        name="kernel_parameter_lost",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="Two machines boot with another boot menu than the written one, so iommu=pt is missing after the reboot.",
        caught_by="The item `kernel parameter iommu=pt` is not in /proc/cmdline after the reboot.",
        source="https://docs.kernel.org/admin-guide/kernel-parameters.html",
    ),
    Fault(
        name="acs_on",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="A bridge in each of two machines keeps PCIe ACS on: GPU-NIC traffic takes the root complex.",
        caught_by="The item `PCIe ACS` still reads as on in the bridges' configuration space after the change.",
        source="https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html",
    ),
    Fault(
        name="fabric_mtu",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="The fabric interfaces of two machines refuse the MTU of the others.",
        caught_by="The item `MTU of INTERFACE` still reads as before after the change.",
        needs="fabric.mtu=9000",
    ),
    Fault(
        name="reboot_hangs",
        gate="os_prep/nodes",
        node="gpus:2",
        summary="Two machines do not come back from the reboot that applies their kernel parameters.",
        caught_by="The reboot times out; facts from before it do not count, because the play did not reach its end.",
    ),
)
