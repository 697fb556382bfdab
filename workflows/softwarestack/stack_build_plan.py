"""The plan of a stack build: its stages, and the stack as files beside their tasks."""

import importlib
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from steps.contract.canonical import digest
from steps.contract.release_layout import ReleaseTarget
from steps.contract.runs import approval
from steps.contract.task import Task, Verb
from steps.softwarestack.contract import stack_input
from steps.softwarestack.contract.stack_input import MAX_BYTES, StackBatch, StackInput
from workflows.plan import approvals
from workflows.plan.compiler import END_TASKS, OPEN_SECONDS
from workflows.plan.model import Plan, PlanError, Starts
from workflows.softwarestack import build_batches, build_tasks
from workflows.softwarestack.build_cache_spec import CACHE_CA
from workflows.softwarestack.stack_plan import StackPlan
from workflows.softwarestack.stack_resolution import ResolvedStack
from workflows.softwarestack.stack_spec import SIGN_KEY, StackSpec
from workflows.spec import SecretRef, announcement_rule
from workflows.spec.sections import proxy
from workflows.stages import STACK_ORDER, stack_build
from workflows.stages.host_access import SecretFile, secret_file
from workflows.stages.stack_site import StackSite
from workflows.stages.stage import ClaimMount, GraphTask, Stage


def compile_stack(
    spec: StackSpec, resolved: ResolvedStack, builds: StackPlan, until: str = "", *, again: bool = False, at_once: int = 0
) -> Plan:
    """Return the plan of a stack build. Pure: reads and writes no files.

    `builds` are the packages that the cache lacks. The plan ends with stage `until`; with `again` even a stack that a rollback left
    is published. `at_once` is the largest number of builds at the same time, 0 for that of the spec.

    Raises PlanError for an unknown stage, and for a stack that is too large to travel with the tasks.
    """
    most = at_once or spec.builds_at_once
    batches, graph = _batches(builds, most)
    stack = replace(resolved.stack, batches=batches)
    files = stack_input.encode_files(resolved.files)
    site = StackSite(
        stack=stack,
        files=stack_input.files_digest(files),
        place=publish_target(spec),
        graph=graph,
        at_once=most,
        again=again,
        claim=publish_claim(spec),
    )
    optional_stages = (importlib.import_module(f"workflows.stages.{name}").build(site) for name in STACK_ORDER)
    stages = _stages_until(tuple(stage for stage in optional_stages if stage is not None), until)
    stages = approvals.attach_approvals(stages, spec.approvals)
    plan_data = {
        "stack": [spec.name, spec.owner, spec.revision],
        "input": stack.digest,
        "stages": [msgspec.to_builtins(stage.digested, enc_hook=dict) for stage in stages],
    }
    plan_digest = digest(plan_data)
    issues = tuple(announcement_rule.scheduled_issues(spec.approvals if spec.schedule else ()))
    header = {"plan": plan_digest, "cluster": spec.name, "owner": spec.owner, "revision": spec.revision, "targetless": True}
    return Plan(
        name=spec.name,
        owner=spec.owner,
        revision=spec.revision,
        target_uid="",
        accelerator="",
        built={},
        stages=stages,
        hosts=(),
        releases=(),
        issues=(),
        secrets=_secrets(spec),
        digest=plan_digest,
        open_task=Task(stage=approvals.RUN, name="open", verb=Verb.OPEN, arguments=header, deadline_seconds=OPEN_SECONDS),
        confirm_tasks=approvals.confirm_tasks(stages),
        announce_tasks=approvals.announce_tasks(spec.name, spec.approvals, stages),
        end_tasks=END_TASKS,
        archives=_task_files(stack, files),
        proxies=proxy.environment(spec.proxy, (), ()),
        builder=spec.builder,
        starts=None if until else Starts(schedule=spec.schedule, issues=issues, cache=spec.cache or ""),
    )


def _batches(builds: StackPlan, at_once: int) -> tuple[tuple[StackBatch, ...], tuple[GraphTask, ...]]:
    """Return the batches of builds in the order in which they start, and a task of the graph for each."""
    if not builds.builds:
        return (), ()
    made, names = build_batches.batches(builds.schedule, at_once), build_tasks.task_names(builds)
    tasks = (
        GraphTask(name=names[key], shard=number, after=tuple(names[needed] for needed in made.direct[key]), group=made.group[key])
        for number, key in enumerate(made.order)
    )
    return tuple(StackBatch(packages=made.packages[key]) for key in made.order), tuple(tasks)


def publish_target(spec: StackSpec) -> ReleaseTarget:
    """Return the publish root of a stack spec in the form that tasks get: folder and keys."""
    publish = spec.publish
    key = SIGN_KEY if publish.sign is not None else ""
    return ReleaseTarget(root=publish.root, keep=publish.keep, key=key, signers=publish.signers)


def publish_claim(spec: StackSpec) -> ClaimMount | None:
    """Return the volume claim by which pods see the publish root of a stack spec; None if the spec names none."""
    publish = spec.publish
    if publish.claim is None:
        return None
    return ClaimMount(claim=publish.claim, path=publish.root, folder=publish.claim_folder or "")


def secret_references(spec: StackSpec) -> dict[str, SecretRef]:
    """Return the references to all secrets of a spec, with those of its approval, by file name in the secrets folder."""
    references = dict(spec.secrets)
    for point in spec.approvals:
        if point.announce is not None and point.announce.webhook is not None:
            references |= {approval.webhook_file(point.before): point.announce.webhook}
            references |= {approval.ca_file(point.before): point.announce.ca} if point.announce.ca else {}
    return references


def _secrets(spec: StackSpec) -> tuple[SecretFile, ...]:
    certificates = {CACHE_CA: "cache_access.ca"}
    files = [secret_file(name, reference, certificates.get(name, "")) for name, reference in secret_references(spec).items()]
    return tuple(sorted(files, key=lambda file: file.name))


def _stages_until(stages: tuple[Stage, ...], until: str) -> tuple[Stage, ...]:
    if until and until not in STACK_ORDER:
        raise PlanError(f"{until!r} is no stage of a stack; stages are {', '.join(STACK_ORDER)}")
    stage_ids = [stage.id for stage in stages]
    if until == stack_build.ID and until not in stage_ids:
        raise PlanError("there is nothing to build: the build cache has all packages of the lock")
    return stages[: stage_ids.index(until) + 1] if until else stages


def _task_files(stack: StackInput, files: bytes) -> Mapping[str, bytes]:
    """Return the files beside the tasks by name. Raises PlanError if a ConfigMap is too small for them."""
    encoded = {stack_input.FILE: stack_input.encode(stack), stack_input.FILES: files}
    size = sum(map(len, encoded.values()))
    if size > MAX_BYTES:
        raise PlanError(
            f"stack {stack.name} with {len(stack.packages)} packages and their easyconfigs has {size} bytes, and {MAX_BYTES}"
            " are the limit of what travels with tasks: split it into several stacks"
        )
    return encoded
