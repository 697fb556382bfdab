"""Stage image_standing: read the published tree first; if this very image is current, all later stages are skipped."""

from __future__ import annotations

from typing import Final

import msgspec

from steps.contract.task import Verb
from steps.stages.image_standing.contract import ID, SHORTCUT, TASK
from workflows.stages.image_site import ImageSite, arguments, image_stage, publish_arguments
from workflows.stages.stage import Stage, Step, task

GATE: Final = "image_standing/tree"
SECONDS = 600
"""Time to read a few GB of one version on the boot server, needed where nothing else tells a difference."""


def build(site: ImageSite) -> Stage | None:
    """Return the stage, or None if the command asks for a build whatever is published.

    Its task gets the arguments of publishing without the signing key.
    """
    if not site.asked:
        return None
    # reading needs no signing key, so the task gets none
    place = msgspec.structs.replace(site.place, key="")
    task_arguments = arguments(site, GATE, image=site.recipe.name, key=site.key, **publish_arguments(place))
    task_arguments |= {"firmware": [firmware.value for firmware in site.firmware]}
    task_arguments |= {"signed": True} if site.place.key else {}
    read = task(ID, TASK, Verb.PUBLISH, deadline=SECONDS, arguments=task_arguments, expectations={"key": site.key})
    return image_stage(ID, "Published image", GATE, Step(task=read), shortcut=SHORTCUT)
