"""The image of checks is the site's choice, in every stage that has a check with it."""

from typing import Any

import pytest
import yaml

from workflows import catalog, examples, spec
from workflows.stages import base_services, gang, rke2
from workflows.stages.stage import Site

MINE = "registry.example.org:5000/library/busybox:1.37.0"
DEFAULT = "docker.io/library/busybox:1.37.0"
STAGES = {"rke2": rke2, "base_services": base_services, "gang": gang}
SCHEDULERS = ({"gang": "volcano"}, {"gang": "kai"}, {"quota": "kueue", "queues": [{"name": "q", "namespace": "q", "gpus": 8}]})


def images(found: Any) -> set[str]:
    """Every image of containers that stands somewhere in the data."""
    if isinstance(found, dict):
        own = {found["image"]} if {"image", "command"} <= set(found) else set()
        return own.union(*map(images, found.values()))
    return set().union(*map(images, found)) if isinstance(found, list | tuple) else set()


@pytest.mark.parametrize("scheduler", SCHEDULERS, ids=("volcano", "kai", "kueue"))
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize(("said", "expected"), [({}, DEFAULT), ({"check_image": MINE}, MINE)], ids=("default", "site"))
def test_a_stage_checks_with_the_image_of_the_spec(
    said: dict[str, Any], expected: str, stage: str, scheduler: dict[str, Any]
) -> None:
    written = yaml.load(examples.path("h200-16").read_text(), Loader=yaml.CSafeLoader)
    cluster = spec.load(yaml.safe_dump(written | {"scheduler": scheduler} | said))
    releases = {release.id: release for release in catalog.resolve(cluster, catalog.load())}
    made = STAGES[stage].build(Site(spec=cluster, machines=cluster.machines, releases=releases))
    assert made is not None
    assert set().union(*(images(step.task.arguments) for step in made.steps)) == {expected}
