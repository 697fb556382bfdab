"""Faults that a rehearsal can inject into the simulated cluster for the gates of operation reset to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="shim_hangs",
        gate="reset/agents",
        node="agents:1",
        summary="A container of one agent hangs in the kernel: its shim and its mount outlive the removal.",
        caught_by="The process and the mount are among the traces of this host.",
        source="https://docs.rke2.io/install/uninstall",
    ),
    Fault(
        name="chains_left",
        gate="reset/servers",
        node="servers:1",
        summary="Chains of kube-proxy remain in the packet filter of one server.",
        caught_by="The chains are among the traces of this host.",
        source="https://docs.rke2.io/install/uninstall",
    ),
)
