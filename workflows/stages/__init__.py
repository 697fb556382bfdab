"""One module a stage, Hera-free data; the running order of a bring-up."""

from workflows import spec

ORDER = spec.STAGES
"""Stage ids in running order; a stage that the spec leaves out is absent from the plan."""

OPERATIONS = ("reset",)
"""Stages that are no part of a bring-up: each is the whole of an operation of that name."""

IMAGE_ORDER = (
    "image_standing",
    "image_lock",
    "image_layers",
    "image_assemble",
    "image_sandbox",
    "image_boot",
    "image_publish",
)
"""Stage ids of the pipeline that builds a node image, in running order: what they build from is an `ImageSite`. The first is
absent where a command asks for a build whatever is published."""
