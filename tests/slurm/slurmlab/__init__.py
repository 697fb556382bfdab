"""Launcher of a real Slurm cluster on hosts in network namespaces."""
