"""Acceptance of a Slurm cluster from a login node: the tasks of stage slurm_acceptance, without Kubernetes."""
