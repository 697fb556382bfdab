"""Stage slurm_acceptance: accepts the nodes of a Slurm cluster from a login node of it, by Slurm's own tools and jobs."""
