"""Input of the builders of image stages (recipe, test machines, publish target), and the tasks and stages that they share."""

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
    """Everything that decides the build of one node image: the resolved recipe, the boot tests, and where to publish.

    The image must boot with each of `firmware`, on `machines` test machines of `memory_mib` MiB each, within `boot_seconds`.
    `again`: publish even a version that was rolled back. `checked`: first check whether this image is already published. `relock`
    are the commands that renew the recipe's lock, for a message of the gate.
    """

    recipe: Recipe
    place: PublishTarget
    firmware: tuple[Firmware, ...] = (Firmware.BIOS, Firmware.UEFI)
    machines: int = 1
    memory_mib: int = 3072
    boot_seconds: int = 300
    again: bool = False
    checked: bool = True
    relock: str = ""

    @property
    def key(self) -> str:
        """Return the digest key under which the store keeps the packed image."""
        return build_keys.image(self.recipe)


def arguments(site: ImageSite, gate: str, **more: object) -> Object:
    """Return the arguments of an image task: the recipe's digest, the gate id, and the keyword arguments `more`."""
    return {"recipe": site.recipe.digest, "gate": gate, **more}


def publish_arguments(place: PublishTarget) -> Object:
    """Return the task arguments for a publish target, with the digest of its groups in place of the groups.

    The groups lie in a file beside the task, because a task file has no room for many machines.
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
    """Return the task in which verb `build` does one part of an image build, such as `lock`."""
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
    """Return a stage of the image pipeline: the given tasks, which share one gate, and a judge without hosts and quorum."""
    checks = [{"task": step.name, "gate": gate} for step in steps]
    judge = judge_step(stage, checks, deadline=300, needed=0, members="all")
    return Stage(id=stage, title=title, steps=(*steps, judge), gates=(gate,), changes=changes, rollback=rollback, **more)
