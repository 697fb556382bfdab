"""Runs of an image build that found their image published already: nothing was left to do, and the report says so."""

from collections.abc import Iterable

import msgspec

from steps.contract.evidence import Evidence, seen
from steps.contract.stages.image_standing import ID, TASK, Standing
from steps.contract.verdict import Status
from steps.report import model


def current(latest: Iterable[Evidence]) -> Standing | None:
    """What the tree said, where it has this very image; None of every other run, and where the record cannot be read."""
    for record in latest:
        if (record.stage, record.task) == (ID, TASK) and record.verdict is not None and record.verdict.is_pass:
            standing = seen(record.observation, Standing)
            return standing if standing is not None and standing.is_current else None
    return None


def spared(stages: tuple[model.Stage, ...], standing: Standing | None) -> tuple[model.Stage, ...]:
    """The stages; those that had nothing to do say why."""
    if standing is None:
        return stages
    return tuple(_left_out(stage, standing) if stage.status == model.NOT_RUN and not stage.judged else stage for stage in stages)


def is_left_out(stage: model.Stage, standing: Standing | None) -> bool:
    """Whether a stage had nothing to do."""
    return standing is not None and not stage.judged and stage.status == Status.SKIPPED.value


def _left_out(stage: model.Stage, standing: Standing) -> model.Stage:
    return msgspec.structs.replace(stage, status=Status.SKIPPED.value, reason=standing.sentence)
