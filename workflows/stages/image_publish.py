"""Stage image_publish: the tested image becomes a new version in the tree that nodes boot from, by one rename of a pointer."""

from __future__ import annotations

import shlex
from typing import Any, Final

from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge, publish_arguments
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "image_publish"
GATE: Final = "image_publish/tree"
SECONDS = 1800
"""Time to copy a few GB over a slow link to the boot server."""


def build(site: ImageSite) -> Stage:
    """Return the stage: one task that publishes; an approval may hold it back."""
    place = site.place
    expectations: dict[str, Any] = {"groups": [group.name for group in place.groups], "keep": place.keep}
    expectations |= {"signed": True} if place.key else {}
    task_arguments = arguments(site, GATE, **publish_arguments(place)) | ({"again": True} if site.again else {})
    location = f"{place.host}:{place.root}" if place.host else place.root
    return Stage(
        id=ID,
        title="Publication",
        steps=(
            Step(task=task(ID, "tree", Verb.PUBLISH, deadline=SECONDS, arguments=task_arguments, expectations=expectations)),
            judge(ID, {"tree": GATE}),
        ),
        gates=(GATE,),
        changes=(Change(what=f"a new version of {site.recipe.name}, if it is another than the published one", where=location),),
        rollback=f"{_back(site)}: the pointer goes back by one rename; versions are never overwritten",
    )


def _back(site: ImageSite) -> str:
    """Return the rollback command. Only image.yaml holds a remote host's login and the trusted signers, so those need the file."""
    place = site.place
    tree = "image.yaml" if place.host or place.signers else shlex.quote(place.root)
    return f"bringup image rollback --tree {tree} --image {site.recipe.name}"
