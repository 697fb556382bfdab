"""Stage image_status: read what the boot server publishes; if it is this very image, all later stages are skipped."""

from __future__ import annotations

from typing import Final

import msgspec

from steps.contract.task import Verb
from steps.stages.image_status.contract import ID, SHORTCUT, TASK
from workflows.stages.image_site import ImageSite, arguments, image_stage, publish_arguments
from workflows.stages.stage import Stage, Step, task

GATE: Final = "image_status/tree"
SECONDS = 600
"""Time limit in seconds to read a few GB of one published version, which is needed only if nothing else shows a difference."""


def build(site: ImageSite) -> Stage | None:
    """Return stage image_status, or None if the command asks for a build without looking at what is published.

    The task gets the arguments of publishing without the signing key, because it only reads.
    """
    if not site.checked:
        return None
    # reading needs no signing key, so the task gets none
    place = msgspec.structs.replace(site.place, key="")
    task_arguments = arguments(site, GATE, image=site.recipe.name, key=site.key, **publish_arguments(place))
    task_arguments |= {"firmware": [firmware.value for firmware in site.firmware]}
    task_arguments |= {"signed": True} if site.place.key else {}
    read = task(ID, TASK, Verb.PUBLISH, deadline=SECONDS, arguments=task_arguments, expectations={"key": site.key})
    return image_stage(ID, "Published image", GATE, Step(task=read), shortcut=SHORTCUT)
