"""Stage → Hera DAG template, and the run's own templates: approvals and the exit handler."""

from hera.workflows import DAG, Container, Parameter, Suspend, Task
from hera.workflows import models as m

from steps.contract import approval
from steps.contract.stages import image_standing
from workflows.render import names, steps
from workflows.render.secret_volumes import SecretVolumes
from workflows.stages.stage import Stage, Step, When

_ENDED = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")
SHARD_LISTS = ("shards", "agents")
"""What `open` hands out and stages take in."""


def stage(one: Stage, settings: steps.Settings, secrets: SecretVolumes) -> DAG:
    """The DAG of one stage. Its judge is its only leaf, so the judge alone decides the stage's phase."""
    templates = {step.name: steps.step_container(step, settings, secrets) for step in one.steps}
    with DAG(
        name=names.dashed(one.id),
        inputs=[Parameter(name=name) for name in SHARD_LISTS],
        outputs=_outputs(one) or None,
        fail_fast=False,
        parallelism=one.parallelism or None,
    ) as dag:
        for step in one.steps:
            _task(step, templates[step.name])
    return dag


def _outputs(one: Stage) -> list[Parameter]:
    """What the stages after it read: whether anything is left to do."""
    if one.id != image_standing.ID:
        return []
    told = f"{{{{tasks.{names.dashed(image_standing.TASK)}.outputs.parameters.{image_standing.OUTPUT}}}}}"
    source = m.ValueFrom(parameter=told, default=image_standing.CHANGED)
    return [Parameter(name=image_standing.OUTPUT, value_from=source)]


def something_changed() -> str:
    """The condition of the first stage after that one; those behind it are omitted with it."""
    told = f"tasks.{names.dashed(image_standing.ID)}.outputs.parameters.{image_standing.OUTPUT}"
    return f"{{{{{told}}}}} == {image_standing.CHANGED}"


def _task(step: Step, template: Container) -> None:
    fanned = {
        "with_param": f"{{{{inputs.parameters.{step.fan_out}}}}}",
        "arguments": [Parameter(name="shard", value="{{item}}")],
    }
    extra = fanned if step.fan_out else {}
    Task(name=names.dashed(step.name), template=str(template.name), depends=_depends(step) or None, **extra)


def _depends(step: Step) -> str:
    after = [names.dashed(name) for name in step.after]
    return " && ".join(f"{name}.Succeeded" if step.when is When.PASSED else ended(name) for name in after)


def ended(name: str) -> str:
    """The condition that a task has ended, however that was."""
    return "(" + " || ".join(f"{name}.{how}" for how in _ENDED) + ")"


def approve(one: Stage) -> Suspend:
    """The approval before a stage: its parameters default to no approval, so a time-out is none (hera_argo §2.4)."""
    assert one.approval is not None
    return Suspend(
        name=f"{approval.NODE_PREFIX}{names.dashed(one.id)}",
        duration=str(one.approval.timeout_seconds),
        outputs=[
            Parameter(name=name, value_from=m.ValueFrom(supplied=m.SuppliedValueFrom(), default=default))
            for name, default in approval.PARAMETERS.items()
        ],
    )
