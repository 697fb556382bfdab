"""One module a stage, Hera-free data; the running order of a bring-up."""

from workflows import spec

ORDER = spec.STAGES
"""Stage ids in running order; a stage that the spec leaves out is absent from the plan."""
