"""Task of verb `publish` for software stacks: publishes the assembled tree that this run has tested."""

from typing import Final

import msgspec

from steps.clients.releases import known_versions, release_lease
from steps.clients.releases.publication import PublishRequest
from steps.contract.exit import ExitCode
from steps.contract.runs.evidence import read_observation
from steps.errors import Refused
from steps.runtime import gating, stage_results
from steps.runtime.context import Context
from steps.softwarestack import task_input
from steps.softwarestack.cache import store_collection
from steps.softwarestack.contract.stack_input import StackInput
from steps.softwarestack.contract.stack_release import PublishedStack
from steps.softwarestack.contract.stack_tests import StackTested, load_names, reframe_names
from steps.softwarestack.publication import stack_publication
from steps.softwarestack.publication.stack_publication import StackMaking, TestedStack
from steps.softwarestack.task_input import StackPublishArguments
from steps.softwarestack.tree import tree_assembly

_HINT: Final = "a stack is published only by the run that tested it; run the whole pipeline again"


def publish_stack(context: Context) -> ExitCode:
    """Publish the stack, read it back, store verdict and record, and return OK.

    Raises Refused unless this run's tests have passed for the very tree that is published.
    """
    arguments = context.arguments(StackPublishArguments)
    stack, target = task_input.read_stack(context, arguments.stack), arguments.target
    tested = _tested(context, arguments, stack)
    folder = tree_assembly.tree_folder(context.environment.store / task_input.STACKS / tree_assembly.TREES, tested.tree)
    run, known = f"run {context.environment.run}", known_versions.known_versions(context.store, target)
    results = TestedStack(run=context.environment.run, origin=stack.origin, results=tested.results)
    made = StackMaking(
        stack=stack, run=stage_results.run_identity(context, context.store.records(context.environment.run, *arguments.tested))
    )

    def publish() -> PublishedStack:
        release = stack_publication.stage(folder, target, results, made)
        if release.stack.key != stack.key:
            raise Refused(f"{folder} holds the stack {release.stack.key[:19]}, this is {stack.key[:19]}", hint=_HINT)
        request = PublishRequest(
            release=release,
            target=target,
            secrets=context.environment.secrets,
            by=run,
            again=arguments.again,
            known=dict(known),
        )
        return stack_publication.publish(request, context.clock, context.say)

    with store_collection.hold_tree(folder):
        published = release_lease.retry_while_locked(publish, context.clock, context.task.deadline_seconds, context.say)
    published = msgspec.structs.replace(published, tree=tested.tree)
    if published.version:
        known_versions.remember_version(context.store, target, stack.name, published.version, again=arguments.again)
    _record(context, arguments, stack, published)
    return ExitCode.OK


def _tested(context: Context, arguments: StackPublishArguments, stack: StackInput) -> StackTested:
    """Return the results of this run's tests. Raises Refused if they did not pass, or are of another stack or of no tree."""
    stage, task = arguments.tested
    stage_results.require_pass(context, stage, _HINT)
    record = stage_results.passed_record(context, stage, task, _HINT)
    tested = read_observation(record.observation, StackTested)
    if tested is None or tested.stack != stack.digest or not tested.tree:
        which = tested.stack[:19] if tested is not None else "no stack"
        raise Refused(f"{stage}.{task} tested {which}, this is {stack.digest[:19]}", hint=_HINT)
    return tested


def _record(context: Context, arguments: StackPublishArguments, stack: StackInput, published: PublishedStack) -> None:
    tests = [*load_names(stack), *(test.name for test in stack.tests), *reframe_names(stack)]
    beside = {"name": stack.name, "key": stack.key, "tree": published.tree, "tests": tests}
    gate = gating.find(arguments.gate)
    verdict = gate.decide(published, gate.expect({**context.task.expectations, **beside}, ()))
    changes = [] if published.unchanged else [f"published {stack.name} {published.version}"]
    changes += [f"removed version {version}" for version in published.removed]
    changes += [f"removed package {folder}" for folder in published.removed_packages]
    context.record(verdict, observation=msgspec.to_builtins(published), changes=changes)
    context.output("verdict", verdict.status.value)
