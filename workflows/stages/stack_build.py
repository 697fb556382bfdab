"""Stage stack_build: build each package that the build cache lacks, after those that it needs, and put it into the cache."""

from __future__ import annotations

from typing import Final

from steps.contract.plain_text import count
from workflows.stages.stack_site import StackSite, cache_secrets, part_step, stack_stage
from workflows.stages.stage import Change, Object, Stage

ID: Final = "stack_build"
GATE: Final = "stack_build/batch"
PART: Final = "package"
MARGIN: Final = 1800
"""Seconds beside the build itself: fetching sources, installing dependencies from the cache, packing."""


def build(site: StackSite) -> Stage | None:
    """Return stage stack_build: one task for all batches of builds, which are its shards. None if the cache has all packages."""
    if not site.graph:
        return None
    stack = site.stack
    arguments: Object = cache_secrets(stack) | ({"key": stack.cache.key} if stack.cache.key else {})
    # all builds share a template, hence its limit
    arguments["memory_mib"] = max(stack.by_hash[hash_].memory_mib for batch in stack.batches for hash_ in batch.packages)
    longest = max(len(batch.packages) for batch in stack.batches)
    deadline = longest * stack.limits.build_seconds + MARGIN
    step = part_step(site, ID, PART, GATE, deadline=deadline, arguments=arguments, graph=site.graph)
    missing = sum(len(batch.packages) for batch in stack.batches)
    built = Change(
        what=f"{count(missing, 'package')} of {len(stack.packages)}", where=stack.cache.place or "the cache of the store"
    )
    return stack_stage(
        ID,
        "Packages",
        GATE,
        step,
        changes=(built,),
        rollback="nothing to undo: packages that no stack needs go with `bringup stack gc`",
        parallelism=site.at_once,
        downloads=(PART,),
    )
