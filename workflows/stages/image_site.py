"""The input of the stages of the image pipeline: the resolved recipe, its test machines, and the tree to publish to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from steps.contract.task import Verb
from steps.nodeimage.contract import boot_tree, build_keys
from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.contract.resolved_recipe import Recipe
from workflows.stages.stage import Change, Object, Stage, Step, judge_step, task


@dataclass(frozen=True, kw_only=True)
class ImageSite:
    """A node image to build.

    It must boot with each of `firmware`, on `machines` machines of `memory_mib` MiB, within `boot_seconds`. `again`: publish even a
    version that was rolled back. `asked`: check first whether this image is published already. `relock` says how the recipe's lock
    is made anew.
    """

    recipe: Recipe
    place: PublishTarget
    firmware: tuple[Firmware, ...] = (Firmware.BIOS, Firmware.UEFI)
    machines: int = 1
    memory_mib: int = 3072
    boot_seconds: int = 300
    again: bool = False
    asked: bool = True
    relock: str = ""

    @property
    def key(self) -> str:
        """Return the key of the packed image."""
        return build_keys.image(self.recipe)


def arguments(site: ImageSite, gate: str, **more: object) -> Object:
    """Return the arguments of a task of the image pipeline: recipe by digest, gate, and the part's own arguments."""
    return {"recipe": site.recipe.digest, "gate": gate, **more}


def publish_arguments(place: PublishTarget) -> Object:
    """Return the arguments that say where an image is published.

    A task file has no room for a fleet, so the groups lie in a file beside the task and are named by digest.
    """
    target = msgspec.to_builtins(msgspec.structs.replace(place, groups=()))
    return {"place": target, "groups": boot_tree.groups_digest(place.groups)}


def part_step(
    site: ImageSite,
    stage: str,
    name: str,
    gate: str,
    part: str,
    *,
    deadline: int,
    expectations: Object,
    after: tuple[str, ...] = (),
    **more: object,
) -> Step:
    """Return the task that does one part of a build."""
    own = arguments(site, gate, part=part, **more)
    return Step(task=task(stage, name, Verb.BUILD, deadline=deadline, arguments=own, expectations=expectations), after=after)


def image_stage(
    stage: str,
    title: str,
    gate: str,
    *steps: Step,
    changes: tuple[Change, ...] = (),
    rollback: str = "nothing is changed",
    **more: Any,
) -> Stage:
    """Return a stage of the image pipeline: tasks with one gate each, and a judge that judges no machine of a fleet."""
    checks = [{"task": step.name, "gate": gate} for step in steps]
    judge = judge_step(stage, checks, deadline=300, needed=0, members="all")
    return Stage(id=stage, title=title, steps=(*steps, judge), gates=(gate,), changes=changes, rollback=rollback, **more)
