"""Faults of operation reset."""

from workflows.rehearsal.faults.registry import Fault

FAULTS = (
    Fault(
        name="shim_hangs",
        stage="reset",
        gate="reset/agents",
        node="agents:1",
        summary="A container of one agent hangs in the kernel: its shim and its mount outlive the removal.",
        caught_by="The process and the mount are among the traces of this host.",
    ),
    Fault(
        name="chains_left",
        stage="reset",
        gate="reset/servers",
        node="servers:1",
        summary="Chains of kube-proxy stay in one server's packet filter.",
        caught_by="The chains are among the traces of this host.",
    ),
)
