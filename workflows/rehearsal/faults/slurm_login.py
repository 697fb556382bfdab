"""Faults that a rehearsal can inject into the simulated cluster for the gate of stage slurm_login to catch."""

from workflows.rehearsal.faults.fault_registry import Fault

FAULTS = (
    Fault(
        name="slurm_login_stuck",
        gate="slurm_login/pods",
        summary="A finalizer of a backup controller that is gone keeps the old login pod of a user, although it was deleted.",
        caught_by="slurm-login-0 has another revision than the StatefulSet's newest.",
        cause="slurm-login-0 is of the old revision",
        false_green="The API server accepted the deletion, and the old pod still takes logins.",
        needs="slurm.kind=sunk",
        source="https://kubernetes.io/docs/concepts/overview/working-with-objects/finalizers/",
    ),
    Fault(
        name="slurm_login_crashes",
        gate="slurm_login/pods",
        summary="sshd of the new login pod finds no host keys and ends, so that nobody can log in any more.",
        caught_by="slurm-login-0 is of the new revision and not ready.",
        cause="no hostkeys available",
        false_green="No login pod is of an old revision any more.",
        needs="slurm.kind=sunk",
        source="https://man.openbsd.org/sshd.8",
    ),
)
