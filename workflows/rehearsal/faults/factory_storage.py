"""Faults that a rehearsal can inject into the simulated cluster for the gates of stage factory_storage to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="volume_not_shared",
        gate="factory_storage/functional",
        summary="The path is a folder of its own on each node: the export is not mounted, and pods see the node's disk.",
        caught_by="Pods on other nodes do not read what the first one wrote.",
        cause=r"read nothing: no file after",
        false_green="The claim is bound, and every pod can write.",
        needs="has_share=True",
        source="https://kubernetes.io/docs/concepts/storage/persistent-volumes/",
    ),
    Fault(
        name="share_read_only",
        gate="factory_storage/functional",
        summary="The server exports the folder read-only.",
        caught_by="The first pod cannot write.",
        cause=r"did not write: cannot write",
        false_green="The claim is bound, and every node mounts the folder.",
        needs="has_share=True",
        source="https://man7.org/linux/man-pages/man5/exports.5.html",
    ),
)
