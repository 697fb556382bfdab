"""One module a stage, Hera-free data; the running order of a bring-up."""

from workflows import spec

ORDER = spec.STAGES
"""Stage ids in running order; a stage that the spec leaves out is absent from the plan."""

OPERATIONS = ("reset",)
"""Stages that are no part of a bring-up: each is the whole of an operation of that name."""
