"""Stage slurm: Slurm on Kubernetes has every node with all its GPUs, and a job reaches each of them."""
