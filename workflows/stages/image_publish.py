"""Stage image_publish: the tested image as a new version where nodes boot from, by one switch of a pointer."""

from __future__ import annotations

import shlex
from typing import Any, Final

from steps.contract.task import Verb
from workflows.stages.image_site import ImageSite, arguments, judge, placed
from workflows.stages.stage import Change, Stage, Step, task

ID: Final = "image_publish"
GATE: Final = "image_publish/tree"
SECONDS = 1800
"""A few GB over a slow link to the boot server."""


def build(site: ImageSite) -> Stage:
    """One task publishes; it may be held back by an approval."""
    place = site.place
    wanted: dict[str, Any] = {"groups": [group.name for group in place.groups], "keep": place.keep}
    wanted |= {"signed": True} if place.key else {}
    told = arguments(site, GATE, **placed(place)) | ({"again": True} if site.again else {})
    where = f"{place.host}:{place.root}" if place.host else place.root
    return Stage(
        id=ID,
        title="Publication",
        steps=(
            Step(task=task(ID, "tree", Verb.PUBLISH, deadline=SECONDS, arguments=told, expectations=wanted)),
            judge(ID, {"tree": GATE}),
        ),
        gates=(GATE,),
        changes=(Change(what=f"a new version of {site.recipe.name}, if it is another than the published one", where=where),),
        rollback=f"{_back(site)}: the pointer goes back by one rename; versions are never overwritten",
    )


def _back(site: ImageSite) -> str:
    """The command that goes back. How to log in on another machine, and whose signature counts, stand in the spec alone, which a
    person has as a file."""
    place = site.place
    tree = "image.yaml" if place.host or place.signers else shlex.quote(place.root)
    return f"bringup image rollback --tree {tree} --image {site.recipe.name}"
