"""Entry points of a software stack's tasks: verbs `build` and `publish`, called through `steps.runtime.product_tasks`."""

import msgspec

from steps.contract.exit import ExitCode
from steps.errors import BadTask
from steps.runtime import gating
from steps.runtime.context import Context
from steps.softwarestack import stack_parts, task_input
from steps.softwarestack.publication import stack_publication_task


def build(context: Context) -> ExitCode:
    """Make one part of a stack, judge it and store the record; the stage's judge decides. Raises BadTask for an unknown part."""
    stack = task_input.read_input(context)
    part = stack_parts.PARTS.get(stack.wanted.part)
    if part is None:
        raise BadTask(f"part {stack.wanted.part!r} of a stack is not one of {', '.join(stack_parts.PARTS)}")
    gate = gating.find(stack.wanted.gate)
    expected = gate.expect(stack_parts.gate_expectation(context, stack), ())
    observation = part(context, stack)
    verdict = gate.decide(observation, expected)
    context.record(verdict, observation=msgspec.to_builtins(observation))
    if context.task.name != task_input.PACKAGE:
        context.output("verdict", verdict.status.value)
    return stack_parts.exit_code(observation)


def publish(context: Context) -> ExitCode:
    """Publish the tree that this run has tested, and store the record (see `stack_publication_task`)."""
    return stack_publication_task.publish_stack(context)
