"""Hera Container templates of tasks: one command, the run's folders, retries by exit code, a deadline, few privileges.

Pods of verb `build` have more privileges (see `building`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hera.workflows import Container, Env, Parameter
from hera.workflows import models as m

from steps import __version__
from steps.contract import paths, task
from steps.contract.runs import lost_attempts
from workflows.render import building, claim_volumes, names
from workflows.render.secret_volumes import FOLDER, SecretVolumes
from workflows.spec.cluster_spec import GROUP_LABEL
from workflows.stages.stage import ClaimMount, Stage, Step

RETRY_LIMIT = 3
RETRY_FIRST, RETRY_FACTOR, RETRY_MOST = "10s", 2, "5m"
"""Waits between attempts: the first wait, the factor by which it grows, and the longest wait.

There is no `maxDuration`: Argo counts the attempts' own time too, and would end the second attempt of every longer task.
"""
DEADLINE_MARGIN = 900
"""Seconds that Argo gives a pod beyond its task's deadline: image pull, start, diagnosis, clean-up."""
ANNOUNCE_MARGIN = 240
"""Seconds that Argo gives an announcement's pod beyond its deadline; few, because the stage waits for its end."""
LOG_READABLE = "60s"
"""Time for which the pod of a successful task stays, so that a process that follows its log can read the end."""
EXECUTOR = "bringup-executor"
"""Name of the account of Argo's own containers, which report each task's result; the task's container itself gets no token."""
USER = 8737
"""User id of pods: that of Argo's own non-root executor image; any id but 0 would do."""

OUTPUTS = {
    "open": {"shards": "[]", "agents": "[]"},
    **{verb: {"verdict": "inconclusive"} for verb in ("wait", "job", "play", "judge", "build", "announce", "confirm")},
}
"""Verb → output parameters with defaults that let nothing pass: enums and lists of shard numbers only, never free text."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Choices of an installation: namespace of the runs, images of steps and builds, pull secret, and the store's volume claim."""

    namespace: str = "bringup"
    image: str = f"bringup-steps:{__version__}"
    builder: str = f"bringup-builder:{__version__}"
    pull_secret: str = ""
    store_claim: str = "bringup-store"
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Proxy variables for tasks that fetch; they come from the spec, not from the installation."""


def container(
    planned: task.Task,
    settings: Settings,
    secrets: SecretVolumes,
    *,
    inputs: tuple[str, ...] = (),
    outputs: Mapping[str, str] | None = None,
    fanned: bool = False,
    downloads: bool = False,
    claim: ClaimMount | None = None,
) -> Container:
    """Add the Container template of one task to the open WorkflowTemplate and return it.

    `inputs` are input parameters that the command gets by `--input`. `outputs` maps output parameters to defaults; by default they
    are those of the task's verb. `fanned` adds the parameter `shard`, `downloads` the proxy variables, `claim` the published
    folder.
    """
    folders = [
        m.VolumeMount(name=folder, mount_path=f"{paths.ROOT}/{folder}", read_only=folder in ("tasks", "fleet") or None)
        for folder in paths.FOLDERS
        if folder != FOLDER
    ]
    parameters = [Parameter(name="shard")] if fanned else []
    parameters += [Parameter(name=name) for name in inputs]
    arguments = [planned.verb.value, "--task", f"{paths.ROOT}/tasks/{task.file_name(planned.stage, planned.name)}"]
    arguments += ["--shard", "{{inputs.parameters.shard}}"] if fanned else []
    defaults = OUTPUTS.get(planned.verb.value, {}) if outputs is None else outputs
    results = [
        Parameter(name=name, value_from=m.ValueFrom(path=f"{paths.ROOT}/out/{name}", default=default))
        for name, default in defaults.items()
    ]
    for name in inputs:
        arguments += ["--input", f"{name}={{{{inputs.parameters.{name}}}}}"]
    return Container(
        name=names.template(planned.stage, planned.name),
        image=settings.builder if building.builds(planned) else settings.image,
        image_pull_policy="IfNotPresent",
        command=["python", "-m", "steps"],
        args=arguments,
        inputs=parameters or None,
        outputs=results or None,
        # a webhook may lie outside of the site, so announcements get the proxies too
        env=_environment(planned.verb) + (variables(settings.proxies) if downloads or planned.verb is task.Verb.ANNOUNCE else []),
        volume_mounts=[*folders, *secrets.mounts(planned), *claim_volumes.mounts(claim)],
        active_deadline_seconds=planned.deadline_seconds
        + (ANNOUNCE_MARGIN if planned.verb is task.Verb.ANNOUNCE else DEADLINE_MARGIN),
        retry_strategy=retry(),
        service_account_name=account(planned.verb.value),
        resources=building.resources(planned) if building.builds(planned) else resources(planned.verb),
        security_context=building.security() if building.builds(planned) else security(),
    )


def variables(values: Mapping[str, str]) -> list[Env]:
    """Return name → value pairs as entries of a container's environment."""
    return [Env(name=name, value=value) for name, value in values.items()]


PLAY_MEMORY = ("1Gi", "3Gi")
"""Memory request and memory limit of a play.

Ansible has a process for each of 50 hosts: 0.8 GiB if each does one small thing, 1.2 GiB if facts are gathered. Data that a site's
own role registers or loops over comes on top, in each process.
"""
USUAL_MEMORY = ("256Mi", "1Gi")


def resources(verb: task.Verb | None = None) -> m.ResourceRequirements:
    """Return CPU and memory requests and limits of a container, except for verb `build` (see `building.resources`)."""
    requested, limit = PLAY_MEMORY if verb is task.Verb.PLAY else USUAL_MEMORY
    return m.ResourceRequirements(
        requests={"cpu": m.Quantity(root="100m"), "memory": m.Quantity(root=requested)}, limits={"memory": m.Quantity(root=limit)}
    )


def security() -> m.SecurityContext:
    """Return the security context of a container except for verb `build`: no capabilities, no writable root file system."""
    return m.SecurityContext(
        allow_privilege_escalation=False, read_only_root_filesystem=True, capabilities=m.Capabilities(drop=["ALL"])
    )


def step_container(
    stage: Stage, step: Step, settings: Settings, secrets: SecretVolumes, more: Mapping[str, str] | None = None
) -> Container:
    """Add the Container template of a stage's task to the open WorkflowTemplate and return it.

    `more` are output parameters with defaults beside those of the task's verb.
    """
    decides = stage.shortcut is not None and stage.shortcut.task == step.name
    # the default is to proceed: a task without a result must not skip the later stages
    outputs = {stage.shortcut.output: stage.shortcut.proceed} if stage.shortcut and decides else None
    if more:
        outputs = {**(outputs or OUTPUTS.get(step.task.verb.value, {})), **more}
    downloads = step.name in stage.downloads
    fanned = bool(step.fan_out or step.graph)
    return container(step.task, settings, secrets, outputs=outputs, fanned=fanned, downloads=downloads, claim=step.claim)


def account(verb: str) -> str:
    """Return the name of the home cluster's ServiceAccount for all pods of one verb."""
    return f"bringup-{verb}"


def retry() -> m.RetryStrategy:
    """Return the retry strategy: up to three retries after exit code 75 or a lost attempt, with growing waits."""
    return m.RetryStrategy(
        limit=m.IntOrString(root=RETRY_LIMIT),
        # Argo reports a deleted pod as Error, but an evicted or refused one as Failed (steps/docs/facts/argo.md: control flow)
        retry_policy="Always",
        expression=lost_attempts.EXPRESSION,
        backoff=m.Backoff(duration=RETRY_FIRST, factor=m.IntOrString(root=RETRY_FACTOR), cap=RETRY_MOST),
    )


def pod_security() -> m.PodSecurityContext:
    """Return the pod-level security context that the restricted level of Pod Security requires, beside each container's own."""
    return m.PodSecurityContext(
        run_as_non_root=True, run_as_user=USER, fs_group=USER, seccomp_profile=m.SeccompProfile(type="RuntimeDefault")
    )


def placement() -> m.Affinity:
    """Return a preference for nodes that no bring-up changes, since those that it changes may reboot under the pod.

    It is only a preference, because the home cluster may have no other nodes. It names a label instead of nodes, so the manifest
    stays small at 10,000 nodes.
    """
    unmanaged = m.NodeSelectorRequirement(key=GROUP_LABEL, operator="DoesNotExist")
    term = m.PreferredSchedulingTerm(weight=100, preference=m.NodeSelectorTerm(match_expressions=[unmanaged]))
    return m.Affinity(node_affinity=m.NodeAffinity(preferred_during_scheduling_ignored_during_execution=[term]))


def volumes(inputs: str, settings: Settings, secrets: SecretVolumes, claim: ClaimMount | None = None) -> list[m.Volume]:
    """Return the volumes of a run's folders: its tasks, its hosts, the run store, a scratch folder, and sets of secret files.

    `claim` adds the published folder.
    """
    # ConfigMaps are immutable and named by digest: a plan that is installed later never changes this one
    short = names.short(inputs)
    return [
        m.Volume(name="tasks", config_map=m.ConfigMapVolumeSource(name=f"bringup-tasks-{short}")),
        m.Volume(name="fleet", config_map=m.ConfigMapVolumeSource(name=f"bringup-fleet-{short}")),
        *secrets.volumes(),
        m.Volume(name="store", persistent_volume_claim=m.PersistentVolumeClaimVolumeSource(claim_name=settings.store_claim)),
        m.Volume(name="out", empty_dir=m.EmptyDirVolumeSource()),
        *claim_volumes.volumes(claim),
    ]


def _environment(verb: task.Verb) -> list[Env]:
    """Return the environment entries of a task, by verb.

    Only `open` gets the source of the spec, which it records; only `announce` gets the namespace.
    """
    environment = variables({**paths.ENVIRONMENT, paths.RUN: "{{workflow.name}}", paths.REUSE: "{{workflow.parameters.reuse}}"})
    own = {
        task.Verb.OPEN: {paths.SOURCE: "{{workflow.parameters.source}}"},
        task.Verb.ANNOUNCE: {paths.NAMESPACE: "{{workflow.namespace}}"},
    }
    return environment + variables(own.get(verb, {}))
