"""Stage image_publish: copy the tested image to the boot server as a new version; renaming one pointer makes nodes boot it."""

from __future__ import annotations

import shlex
from typing import Any, Final

from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, image_stage, publish_arguments
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "image_publish"
GATE: Final = "image_publish/tree"
SECONDS = 1800
"""Time limit in seconds to copy a few GB over a slow link to the boot server."""


def build(site: ImageSite) -> Stage:
    """Return stage image_publish: one task that publishes the image. An approval before the stage may hold it back."""
    place = site.place
    expectations: dict[str, Any] = {"groups": [group.name for group in place.groups], "keep": place.keep}
    expectations |= {"signed": True} if place.key else {}
    task_arguments = arguments(site, GATE, **publish_arguments(place)) | ({"again": True} if site.again else {})
    location = f"{place.host}:{place.root}" if place.host else place.root
    # only image.yaml holds a remote host's login and the trusted signers, so those need the file
    tree = "image.yaml" if place.host or place.signers else shlex.quote(place.root)
    back = f"bringup image rollback --tree {tree} --image {site.recipe.name}"
    return image_stage(
        ID,
        "Publication",
        GATE,
        Step(task=task(ID, "tree", Verb.PUBLISH, deadline=SECONDS, arguments=task_arguments, expectations=expectations)),
        changes=(Change(what=f"a new version of {site.recipe.name}, if it is another than the published one", where=location),),
        rollback=f"{back}: the pointer goes back by one rename; versions are never overwritten",
    )
