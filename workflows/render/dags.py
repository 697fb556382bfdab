"""Hera DAG templates of stages, and the templates of approvals."""

from hera.workflows import DAG, Container, Parameter, Suspend, Task
from hera.workflows import models as m

from steps.contract import approval
from steps.contract.shortcut import Shortcut
from workflows.render import names, steps
from workflows.render.secret_volumes import SecretVolumes
from workflows.stages.stage import Stage, Step, When

_ENDED = ("Succeeded", "Failed", "Errored", "Skipped", "Omitted")
SHARD_LISTS = ("shards", "agents")
"""Lists of shard numbers that `open` outputs and stages take as inputs."""


def stage(one: Stage, settings: steps.Settings, secrets: SecretVolumes) -> DAG:
    """Return the DAG of one stage. Its judge is its only leaf, so the judge alone decides the stage's phase."""
    templates = {step.name: steps.step_container(one, step, settings, secrets) for step in one.steps}
    with DAG(
        name=names.dashed(one.id),
        inputs=[Parameter(name=name) for name in SHARD_LISTS],
        outputs=_outputs(one) or None,
        # the judge must still run after a task has failed
        fail_fast=False,
        parallelism=one.parallelism or None,
    ) as dag:
        for step in one.steps:
            _task(step, templates[step.name])
    return dag


def _outputs(one: Stage) -> list[Parameter]:
    """Return the output of a stage with a shortcut, which later stages read; none for other stages."""
    if one.shortcut is None:
        return []
    output = f"{{{{tasks.{names.dashed(one.shortcut.task)}.outputs.parameters.{one.shortcut.output}}}}}"
    source = m.ValueFrom(parameter=output, default=one.shortcut.proceed)
    return [Parameter(name=one.shortcut.output, value_from=source)]


def proceeds(shortcut: Shortcut) -> str:
    """Return the condition under which the stage after one with a shortcut starts; all later stages are omitted with it."""
    output = f"tasks.{names.dashed(shortcut.stage)}.outputs.parameters.{shortcut.output}"
    return f"{{{{{output}}}}} == {shortcut.proceed}"


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
    """Return the condition that a task has ended, in whatever way."""
    return "(" + " || ".join(f"{name}.{phase}" for phase in _ENDED) + ")"


def approve(one: Stage) -> Suspend:
    """Return the suspend node before a stage.

    Its parameters default to no approval, because Argo marks a suspend node that timed out as succeeded
    (`steps/docs/facts/argo.md`, Argo Workflows: approvals).
    """
    assert one.approval is not None
    return Suspend(
        name=f"{approval.NODE_PREFIX}{names.dashed(one.id)}",
        duration=str(one.approval.timeout_seconds),
        outputs=[
            Parameter(name=name, value_from=m.ValueFrom(supplied=m.SuppliedValueFrom(), default=default))
            for name, default in approval.PARAMETERS.items()
        ],
    )
