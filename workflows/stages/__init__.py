"""Stages of a bring-up and of an image build as plain data without Hera, one module a stage, and the order in which they run."""

from workflows.stage_names import STAGES

ORDER = STAGES
"""Ids of the bring-up stages in running order; a stage that the spec leaves out is absent from the plan."""

OPERATIONS = ("reset",)
"""Ids of stages outside a bring-up. Each is the only stage of the operation of the same name."""

IMAGE_ORDER = ("image_standing", "image_lock", "image_layers", "image_assemble", "image_sandbox", "image_boot", "image_publish")
"""Stage ids of the node-image pipeline, in running order; their builders take an `ImageSite`.

`image_standing` is left out when a command asks for a build whatever is published.
"""

EVERY = (*ORDER, *OPERATIONS, *IMAGE_ORDER)
"""Ids of the stages of all pipelines and operations."""
