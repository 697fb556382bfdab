"""Stage slurm: simulated Slinky and SUNK, and the slurmctld that both have."""
