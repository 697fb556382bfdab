"""Stages of bring-ups, image builds and stack builds as plain data without Hera, one module a stage, and their running order."""

from workflows.stage_names import STAGES

ORDER = STAGES
"""Ids of the bring-up stages in running order; a stage that the spec leaves out is absent from the plan."""

FOLLOWING = {"slurm": ("slurm_login",)}
"""Stage of a bring-up → stages that some plans have right after it; `spec.stages` names and leaves out both together."""

RUNNING_ORDER = tuple(name for stage in ORDER for name in (stage, *FOLLOWING.get(stage, ())))
"""Ids of the bring-up stages with those that follow some of them, in running order."""

OPERATIONS = ("reset",)
"""Ids of stages outside a bring-up. Each is the only stage of the operation of the same name."""

IMAGE_ORDER = ("image_status", "image_lock", "image_layers", "image_assemble", "image_sandbox", "image_boot", "image_publish")
"""Stage ids of the node-image pipeline, in running order; their builders take an `ImageSite`.

`image_status` is left out when a command asks for a build whatever is published.
"""

FACTORY_STAGES = ("factory_storage", "factory_registry", "factory_projects", "factory_argo", "factory_pipelines")
"""Ids of the stages that only a factory has, in running order; their builders take a `FactorySite`."""

FACTORY_ORDER = ("os_prep", "rke2", "base_services", *FACTORY_STAGES)
"""Stage ids of the factory pipeline, in running order."""

STACK_ORDER = ("stack_build", "stack_tree", "stack_test", "stack_publish")
"""Stage ids of the software-stack pipeline, in running order; their builders take a `StackSite`."""

SLURM_ORDER = ("slurm_acceptance",)
"""Stage ids of the acceptance of a Slurm cluster from a login node; their builders take a `SlurmAcceptanceSite`."""

PIPELINES = {
    "bring-up": RUNNING_ORDER,
    "operation": OPERATIONS,
    "image": IMAGE_ORDER,
    "stack": STACK_ORDER,
    "factory": FACTORY_ORDER,
    "slurm": SLURM_ORDER,
}
"""Pipeline → ids of its stages in running order; a factory begins with three stages of a bring-up."""

UNSIMULATED = {
    "image": "faults of image builds are tested on real builds and boots (tests/boot), verdicts on cases (tests/gates)",
    "stack": "faults of stack builds are tested on real builds (tests/stack/test_*_faults.py), verdicts on cases (tests/gates)",
    "slurm": "faults of Slurm are made on a real cluster (tests/slurm/test_faults.py), verdicts are tested on cases (tests/gates)",
}
"""Pipelines that no rehearsal simulates → where their faults are tested."""

EVERY = (*RUNNING_ORDER, *OPERATIONS, *IMAGE_ORDER, *FACTORY_STAGES, *STACK_ORDER, *SLURM_ORDER)
"""Ids of the stages of all pipelines and operations."""
