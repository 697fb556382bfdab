"""One module a stage, Hera-free data; the running order of a bring-up."""

ORDER = (
    "os_prep",
    "rke2",
    "base_services",
    "gpu_operator",
    "network_operator",
    "sharing",
    "gang",
    "slurm",
    "validation",
)
"""Stage ids in running order; a stage that the spec leaves out is absent from the plan."""
