"""What a stage of the image pipeline builds from: the resolved recipe, its test machines, and where it is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from steps.contract.image import keys, published
from steps.contract.image.booting import Firmware
from steps.contract.image.published import Place
from steps.contract.image.recipe import Recipe
from steps.contract.task import Verb
from workflows.stages.stage import Object, Step, When, task


@dataclass(frozen=True, kw_only=True)
class ImageSite:
    """One node image. `firmware` are those that must boot it, on `machines` each with `memory_mib`, within `boot_seconds`.
    `again`: what a rollback left is published all the same. `asked`: the published tree is asked first whether anything is to be
    done. `relock` says how the recipe's lock is made anew."""

    recipe: Recipe
    place: Place
    firmware: tuple[Firmware, ...] = (Firmware.BIOS, Firmware.UEFI)
    machines: int = 1
    memory_mib: int = 3072
    boot_seconds: int = 300
    again: bool = False
    asked: bool = True
    relock: str = ""

    @property
    def key(self) -> str:
        """Key of the packed image."""
        return keys.image(self.recipe)


def arguments(site: ImageSite, gate: str, **more: object) -> Object:
    """Arguments of a task of the pipeline: the recipe by digest, the gate of what it makes, and what is the part's own."""
    return {"recipe": site.recipe.digest, "gate": gate, **more}


def placed(place: Place) -> Object:
    """Arguments that say where an image is published: a task file has no room for a fleet, so the groups are a file beside it."""
    told = msgspec.to_builtins(msgspec.structs.replace(place, groups=()))
    return {"place": told, "groups": published.groups_digest(place.groups)}


def judge(stage: str, gates: Mapping[str, str]) -> Step:
    """The step that decides a stage. `gates` maps task names to gate ids; no machine of a fleet is judged here."""
    checks = [{"task": name, "gate": gate} for name, gate in gates.items()]
    told = {"checks": checks, "needed": 0, "members": "all", "cordon": False}
    return Step(task=task(stage, "judge", Verb.JUDGE, deadline=300, arguments=told), after=tuple(gates), when=When.ANYHOW)
