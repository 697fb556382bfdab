"""Stage image_standing: the published tree is asked first; where this very image is current, nothing after it is done."""

from __future__ import annotations

from typing import Final

import msgspec

from steps.contract.stages.image_standing import ID, TASK
from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge, placed
from workflows.stages.stage import Stage, Step, task

GATE: Final = "image_standing/tree"
SECONDS = 600
"""A few GB of one version are read on the boot server where nothing else differs."""


def build(site: ImageSite) -> Stage | None:
    """One task asks; it gets all that publishing is told but the key that signs. None where nothing is to be asked."""
    if not site.asked:
        return None
    place = msgspec.structs.replace(site.place, key="")
    told = arguments(site, GATE, image=site.recipe.name, key=site.key, **placed(place))
    told |= {"firmware": [one.value for one in site.firmware]} | ({"signed": True} if site.place.key else {})
    one = task(ID, TASK, Verb.PUBLISH, deadline=SECONDS, arguments=told, expectations={"key": site.key})
    return Stage(
        id=ID,
        title="Published image",
        steps=(Step(task=one), judge(ID, {TASK: GATE})),
        gates=(GATE,),
        changes=(),
        rollback="nothing is changed",
    )
