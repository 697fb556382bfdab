"""The input of the stages of the image pipeline: the resolved recipe, its test machines, and the tree to publish to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from steps.contract.task import Verb
from steps.nodeimage.contract import boot_tree, build_keys
from steps.nodeimage.contract.boot_tests import Firmware
from steps.nodeimage.contract.boot_tree import PublishTarget
from steps.nodeimage.contract.resolved_recipe import Recipe
from workflows.stages.stage import Object, Step, When, task


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


def judge(stage: str, gates: Mapping[str, str]) -> Step:
    """Return the step that decides a stage. `gates` maps task names to gate ids; no machine of a fleet is judged here."""
    checks = [{"task": name, "gate": gate} for name, gate in gates.items()]
    judge_arguments = {"checks": checks, "needed": 0, "members": "all", "cordon": False}
    return Step(
        task=task(stage, "judge", Verb.JUDGE, deadline=300, arguments=judge_arguments), after=tuple(gates), when=When.ANYHOW
    )
