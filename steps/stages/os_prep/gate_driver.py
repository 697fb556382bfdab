"""Judges what a machine shows of its NVIDIA driver: its owner, signatures of kernel modules, nvidia-smi, and the NVLink fabric."""

from collections.abc import Iterator

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.stages.os_prep.contract import Facts, NodesExpectation, NvidiaSmi
from steps.stages.shared.finding import Finding, fail, unknown

NO_FABRIC = frozenset({"N/A", "Not Supported"})
"""Fabric states that nvidia-smi prints for a GPU outside any NVLink fabric."""
SMI_CODES = {
    4: (FailureClass.RUNTIME, "the user may not talk to the driver", "see the modes of /dev/nvidia*"),
    6: (FailureClass.HARDWARE, "it finds no GPU", "dmesg (NVRM) on the node: the driver took none of its GPUs"),
    8: (FailureClass.HARDWARE, "a GPU lacks its power cables", "connect the power cables of the GPU"),
    9: (FailureClass.DEPENDENCY, "the driver is not loaded", "modprobe nvidia, and read why it fails in dmesg"),
    10: (FailureClass.HARDWARE, "interrupts of a GPU do not arrive", "dmesg (NVRM) on the node; update its firmware"),
    12: (FailureClass.DEPENDENCY, "libnvidia-ml.so is missing", "install the libraries of the driver's version"),
    13: (FailureClass.DEPENDENCY, "libnvidia-ml.so is older than nvidia-smi", "install the libraries of the driver's version"),
    14: (FailureClass.HARDWARE, "the infoROM of a GPU is corrupted", "have the GPU replaced or its infoROM repaired by the vendor"),
    15: (
        FailureClass.HARDWARE,
        "a GPU is no longer accessible",
        "read Xid lines in dmesg; power the machine off and on, and replace the GPU if it is lost again",
    ),
    18: (
        FailureClass.DEPENDENCY,
        "the loaded driver and its libraries have different versions",
        "reboot the node, so that the module of the installed version is loaded",
    ),
}
"""Exit code of nvidia-smi → failure class, meaning and next step (https://docs.nvidia.com/deploy/nvidia-smi/index.html; 18 is
NVML_ERROR_LIB_RM_VERSION_MISMATCH, with which it ends after an upgrade without a reboot).
"""
OTHER_CODE = (FailureClass.RUNTIME, "it failed", "run nvidia-smi on the node, and read dmesg (NVRM, Xid)")
SIGNED_ONLY = "its kernel loads signed modules only"
ENROLL = "enroll the key that signed its modules (mokutil --import, and confirm at the console), or switch Secure Boot off"


def findings(facts: Facts, want: NodesExpectation) -> Iterator[Finding]:
    """Yield problems of the NVIDIA driver: a host driver and the GPU Operator's exclude each other, and nouveau excludes both.

    Sources: https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/getting-started.html; `bringup explain P05`.
    """
    if facts.nouveau_loaded:
        step = "reboot the node: nouveau is blacklisted by now"
        yield fail(FailureClass.DEPENDENCY, "nouveau is loaded", "nouveau not loaded", step)
    if facts.nvidia_smi_hangs:
        step = "read Xid lines in the kernel's log (`dmesg | grep -i xid`): a GPU or its driver hangs; a reboot may bring it back"
        yield fail(FailureClass.HARDWARE, "nvidia-smi does not answer", "an answer within a minute", step)
    yield from _signatures(facts, want)
    # machines without GPUs need no driver; one with a driver is checked whatever GPUs it shows
    if want.driver_on_host is None or not (facts.gpus or facts.nvidia_driver):
        return
    if want.driver_on_host and not (facts.nvidia_driver and _has_driver(facts)):
        yield _no_host_driver(facts)
    elif not want.driver_on_host and _has_driver(facts):
        seen = f"NVIDIA driver {facts.nvidia_driver or 'that is not loaded'} on the host"
        step = "remove the driver from the node, or set driver.enabled to false"
        yield fail(FailureClass.INPUT, seen, "none, as driver.enabled is true", step)
    elif want.driver_on_host:
        yield from _nvidia_smi(facts)
        yield from _fabric_manager(facts) if facts.nvswitches else _fabric(facts)


def _no_host_driver(facts: Facts) -> Finding:
    if facts.driver_installed and facts.signed_modules_only:
        seen = f"an NVIDIA driver that is not loaded, and {_signed(facts)}"
        return fail(FailureClass.INPUT, seen, "a driver whose signature the machine accepts", ENROLL)
    running = f": {facts.nvidia_driver}, which runs, is of a container" if facts.nvidia_driver else ""
    seen = f"{facts.gpus} GPUs and no NVIDIA driver on the host{running}"
    step = "install the driver on the node, or let the GPU Operator bring it"
    return fail(FailureClass.DEPENDENCY, seen, "a driver on the host, as driver.enabled is false", step)


def _signatures(facts: Facts, want: NodesExpectation) -> Iterator[Finding]:
    """Yield a problem if drivers are built on this machine and its kernel loads only modules with a signature that it knows.

    The modules that a driver container builds are unsigned: modprobe ends with `Key was rejected by service`.
    """
    if not want.built_drivers or not (facts.gpus or facts.gpu_machine):
        return
    drivers = " and ".join(want.built_drivers)
    if facts.signed_modules_only is None:
        seen = "nothing says whether its kernel loads unsigned modules"
        step = "see /sys/kernel/security/lockdown and mokutil --sb-state on the node"
        yield unknown(FailureClass.RUNTIME, seen, f"a kernel that loads {drivers}", step)
    elif facts.signed_modules_only:
        step = "switch Secure Boot off, install signed drivers on the hosts (driver: host), or use precompiled signed drivers"
        if facts.secure_boot is False:
            step = "take module.sig_enforce and lockdown= off the kernel's command line, or install signed drivers on the hosts"
        yield fail(FailureClass.INPUT, _signed(facts), f"a kernel that loads {drivers}, built there without a signature", step)


def _signed(facts: Facts) -> str:
    return f"Secure Boot is on: {SIGNED_ONLY}" if facts.secure_boot else SIGNED_ONLY


def _has_driver(facts: Facts) -> bool:
    """Return True if the host has a driver of its own.

    A running driver may be the GPU Operator's, which uses the host's kernel too. If its origin is unknown, it counts as the host's.
    """
    return bool(facts.nvidia_driver) if facts.driver_installed is None else facts.driver_installed


def _nvidia_smi(facts: Facts) -> Iterator[Finding]:
    """Yield a problem unless nvidia-smi of the host's driver succeeded and listed every GPU on the PCI bus."""
    if facts.nvidia_smi_hangs:
        return
    answer = facts.nvidia_smi
    if answer is None:
        seen = f"driver {facts.nvidia_driver}, and no nvidia-smi that says what it sees"
        step = "install nvidia-smi of the driver's version (nvidia-utils, nvidia-driver-cuda) on the node"
        yield unknown(FailureClass.DEPENDENCY, seen, "an answer of nvidia-smi", step)
    elif answer.exit_code:
        failure_class, meaning, step = SMI_CODES.get(answer.exit_code, OTHER_CODE)
        yield fail(failure_class, f"nvidia-smi ended with {answer.exit_code}, {meaning}{_quoted(answer)}", "exit code 0", step)
    elif answer.gpus is None:
        step = "run nvidia-smi -q on the node: it begins with `Attached GPUs`"
        yield unknown(FailureClass.RUNTIME, f"nvidia-smi does not count its GPUs{_quoted(answer)}", f"{facts.gpus} GPUs", step)
    elif answer.gpus < facts.gpus:
        seen = f"nvidia-smi lists {count(answer.gpus, 'GPU')}{_quoted(answer)}"
        step = "dmesg (NVRM, Xid) on the node: reseat or replace the GPU that the driver does not take"
        yield fail(FailureClass.HARDWARE, seen, f"{facts.gpus}, as on the PCI bus", step)
    elif answer.text:
        step = "nvidia-smi -q on the node, and Xid lines in dmesg"
        yield fail(FailureClass.HARDWARE, f"nvidia-smi ended with 0 and says{_quoted(answer)}", "no complaint", step)


def _quoted(answer: NvidiaSmi) -> str:
    return f": {answer.text}" if answer.text else ""


def _fabric_manager(facts: Facts) -> Iterator[Finding]:
    """Yield problems of the fabric manager. With NVSwitches it must have exactly the driver's version, or CUDA does not start."""
    if not facts.fabric_manager_active:
        seen = f"{facts.nvswitches} NVSwitches and no active fabric manager"
        step = "install and enable nvidia-fabricmanager of the driver's version"
        yield fail(FailureClass.DEPENDENCY, seen, "nvidia-fabricmanager active", step)
    elif facts.fabric_manager != facts.nvidia_driver:
        seen = f"fabric manager {facts.fabric_manager or 'of unknown version'}"
        step = "install the fabric manager of the driver's version"
        yield fail(FailureClass.DEPENDENCY, seen, f"{facts.nvidia_driver}, as the driver", step)
    elif not facts.fabric_states:
        seen = f"{facts.nvswitches} NVSwitches, and nvidia-smi tells no fabric state"
        yield unknown(FailureClass.DEPENDENCY, seen, "Completed", "run nvidia-smi -q on the node and look for Fabric")
    else:
        yield from _fabric(facts)


def _fabric(facts: Facts) -> Iterator[Finding]:
    """Yield a failure if GPUs in an NVLink fabric are not ready in it.

    On B200 and NVL72 machines the switches are no devices of the machine, but its GPUs still report a fabric state.
    """
    if set(facts.fabric_states) - {"Completed", *NO_FABRIC} or (facts.nvswitches and set(facts.fabric_states) & NO_FABRIC):
        step = "read the fabric manager's log for NVLink errors"
        yield fail(FailureClass.HARDWARE, f"fabric state {', '.join(facts.fabric_states)}", "Completed", step)
