"""Stages of a bring-up and of an image build as plain data, one module a stage, without Hera; and the order in which they run."""

from workflows import spec

ORDER = spec.STAGES
"""Stage ids in running order; a stage that the spec leaves out is absent from the plan."""

OPERATIONS = ("reset",)
"""Stages outside a bring-up: each is the whole of the operation of the same name."""

IMAGE_ORDER = ("image_standing", "image_lock", "image_layers", "image_assemble", "image_sandbox", "image_boot", "image_publish")
"""Stage ids of the node-image pipeline, in running order; their builders take an `ImageSite`.

`image_standing` is left out when a command asks for a build whatever is published.
"""

EVERY = (*ORDER, *OPERATIONS, *IMAGE_ORDER)
"""Stage ids of all pipelines and operations."""
