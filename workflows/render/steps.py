"""Task → Hera Container template: one command, the five folders, retries by exit code, a deadline, little privilege (but for
verb `build`: `building`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hera.workflows import Container, Env, Parameter
from hera.workflows import models as m

from steps import __version__
from steps.contract import paths, task
from steps.contract.exit import RETRY_EXPRESSION
from steps.contract.stages import image_lock, image_standing
from workflows.render import building, names
from workflows.render.secret_volumes import FOLDER, SecretVolumes
from workflows.spec.derived import GROUP_LABEL
from workflows.stages.stage import Step

RETRY_LIMIT = 3
RETRY_FIRST, RETRY_FACTOR, RETRY_MOST = "10s", 2, "5m"
"""Waits between two attempts, growing to the last. No `maxDuration`: that counts the attempts' own time too, and would end the
second attempt of every task that takes longer (argo_conformance `retry-backoff-max`)."""
DEADLINE_MARGIN = 900
"""Seconds beyond the task's own deadline (image pull, start, diagnosis, clean-up) after which the engine ends the pod."""
ANNOUNCE_MARGIN = 240
"""The same for an announcement, which the stage comes after: nothing to diagnose or clean, an image that may be slow."""
LOG_READABLE = "60s"
"""How long the pod of a step that succeeded stays, so that who follows its log reads the end."""
EXECUTOR = "bringup-executor"
"""The account of Argo's own containers, which report each step's result; the step's container itself gets no token."""
USER = 8737
"""The user id of Argo's own non-root executor image; any id but 0 will do."""

OUTPUTS = {
    "open": {"shards": "[]", "agents": "[]"},
    "wait": {"verdict": "inconclusive"},
    "job": {"verdict": "inconclusive"},
    "play": {"verdict": "inconclusive"},
    "judge": {"verdict": "inconclusive"},
    "build": {"verdict": "inconclusive"},
    "announce": {"verdict": "inconclusive"},
    "confirm": {"verdict": "inconclusive"},
}
"""Output parameters by verb with their fail-closed defaults (design §4): enums and lists of shard numbers only."""
STANDING = {image_standing.OUTPUT: image_standing.CHANGED}
"""The same of the one task that says whether anything is left to do: where it cannot tell, everything is."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What an installation chooses: namespace of home, the step image, the image of pods that build node images, the Secret by
    which nodes pull both, the store's volume claim."""

    namespace: str = "bringup"
    image: str = f"bringup-steps:{__version__}"
    builder: str = f"bringup-builder:{__version__}"
    pull_secret: str = ""
    store_claim: str = "bringup-store"
    proxies: Mapping[str, str] = field(default_factory=dict)
    """Not of the installation but of the spec: what tasks that fetch have in their environment."""


def container(
    one: task.Task, settings: Settings, secrets: SecretVolumes, *, inputs: tuple[str, ...] = (), fanned: bool = False
) -> Container:
    """The template of one task. `inputs` are workflow inputs handed on by `--input`; `fanned` adds the shard."""
    parameters = [Parameter(name="shard")] if fanned else []
    parameters += [Parameter(name=name) for name in inputs]
    arguments = [one.verb.value, "--task", f"{paths.ROOT}/tasks/{task.file_name(one.stage, one.name)}"]
    arguments += ["--shard", "{{inputs.parameters.shard}}"] if fanned else []
    for name in inputs:
        arguments += ["--input", f"{name}={{{{inputs.parameters.{name}}}}}"]
    return Container(
        name=names.template(one.stage, one.name),
        image=settings.builder if building.builds(one) else settings.image,
        image_pull_policy="IfNotPresent",
        command=["python", "-m", "steps"],
        args=arguments,
        inputs=parameters or None,
        outputs=[_output(name, default) for name, default in _outputs(one).items()] or None,
        env=_environment(one.verb) + (variables(settings.proxies) if fetches(one) else []),
        volume_mounts=_mounts(secrets.mounts(one)),
        active_deadline_seconds=one.deadline_seconds + (ANNOUNCE_MARGIN if one.verb is task.Verb.ANNOUNCE else DEADLINE_MARGIN),
        retry_strategy=retry(),
        service_account_name=account(one.verb.value),
        resources=building.resources(one) if building.builds(one) else resources(one.verb),
        security_context=building.security() if building.builds(one) else security(),
    )


def fetches(one: task.Task) -> bool:
    """Whether a task reaches what lies outside by HTTP, beside Kubernetes APIs, which no task reaches by a proxy."""
    return one.verb is task.Verb.ANNOUNCE or (one.stage, one.name) == (image_lock.ID, image_lock.TASK)


def variables(told: Mapping[str, str]) -> list[Env]:
    """As a container has them."""
    return [Env(name=name, value=value) for name, value in told.items()]


PLAYING = ("1Gi", "3Gi")
"""Memory of a play, asked for and at most. Ansible has a process for each of 50 hosts: 0.8 GiB where each does one small thing, 1.2
where facts are gathered; what a role of the site registers or loops over comes on top, in each of them."""
OTHERS = ("256Mi", "1Gi")


def resources(verb: task.Verb | None = None) -> m.ResourceRequirements:
    """Of a container that builds nothing."""
    asked, most = PLAYING if verb is task.Verb.PLAY else OTHERS
    return m.ResourceRequirements(
        requests={"cpu": m.Quantity(root="100m"), "memory": m.Quantity(root=asked)},
        limits={"memory": m.Quantity(root=most)},
    )


def security() -> m.SecurityContext:
    """Of a container that builds nothing: no rights beyond its files."""
    return m.SecurityContext(
        allow_privilege_escalation=False, read_only_root_filesystem=True, capabilities=m.Capabilities(drop=["ALL"])
    )


def step_container(step: Step, settings: Settings, secrets: SecretVolumes) -> Container:
    """The template of one task of a stage."""
    return container(step.task, settings, secrets, fanned=bool(step.fan_out))


def account(verb: str) -> str:
    """ServiceAccount in home of all pods of one verb."""
    return f"bringup-{verb}"


def retry() -> m.RetryStrategy:
    """Again on exit code 75 and on a lost pod (which is an Error, never a Failure: hera_argo §2.5); a few times, ever later."""
    return m.RetryStrategy(
        limit=m.IntOrString(root=RETRY_LIMIT),
        retry_policy="Always",
        expression=f"{RETRY_EXPRESSION} || lastRetry.status == 'Error'",
        backoff=m.Backoff(duration=RETRY_FIRST, factor=m.IntOrString(root=RETRY_FACTOR), cap=RETRY_MOST),
    )


def pod_security() -> m.PodSecurityContext:
    """What the restricted level of Pod Security asks of a pod, beside what each container has."""
    return m.PodSecurityContext(
        run_as_non_root=True, run_as_user=USER, fs_group=USER, seccomp_profile=m.SeccompProfile(type="RuntimeDefault")
    )


def placement() -> m.Affinity:
    """Away from nodes that a bring-up changes, which it may reboot under the pod. A wish, no demand: home may have no other nodes.

    It names the label and no nodes: the manifest stays as large at 10,000 of them.
    """
    unmanaged = m.NodeSelectorRequirement(key=GROUP_LABEL, operator="DoesNotExist")
    term = m.PreferredSchedulingTerm(weight=100, preference=m.NodeSelectorTerm(match_expressions=[unmanaged]))
    return m.Affinity(node_affinity=m.NodeAffinity(preferred_during_scheduling_ignored_during_execution=[term]))


def volumes(inputs: str, settings: Settings, secrets: SecretVolumes) -> list[m.Volume]:
    """The five folders: tasks and fleet of this plan, the store, a scratch folder, and secrets by who needs them."""
    short = names.short(inputs)
    return [
        m.Volume(name="tasks", config_map=m.ConfigMapVolumeSource(name=f"bringup-tasks-{short}")),
        m.Volume(name="fleet", config_map=m.ConfigMapVolumeSource(name=f"bringup-fleet-{short}")),
        *secrets.volumes(),
        m.Volume(name="store", persistent_volume_claim=m.PersistentVolumeClaimVolumeSource(claim_name=settings.store_claim)),
        m.Volume(name="out", empty_dir=m.EmptyDirVolumeSource()),
    ]


def _outputs(one: task.Task) -> dict[str, str]:
    asks = (one.stage, one.name) == (image_standing.ID, image_standing.TASK)
    return STANDING if asks else OUTPUTS.get(one.verb.value, {})


def _output(name: str, default: str) -> Parameter:
    return Parameter(name=name, value_from=m.ValueFrom(path=f"{paths.ROOT}/out/{name}", default=default))


def _environment(verb: task.Verb) -> list[Env]:
    """`open` alone is told where the spec came from: it keeps that for all; `announce` the namespace, for the command it tells."""
    space = [Env(name=paths.NAMESPACE, value="{{workflow.namespace}}")] if verb is task.Verb.ANNOUNCE else []
    source = [Env(name=paths.SOURCE, value="{{workflow.parameters.source}}")] if verb is task.Verb.OPEN else []
    fixed = variables(paths.ENVIRONMENT)
    return [
        *fixed,
        Env(name=paths.RUN, value="{{workflow.name}}"),
        Env(name=paths.REUSE, value="{{workflow.parameters.reuse}}"),
        *source,
        *space,
    ]


def _mounts(secrets: list[m.VolumeMount]) -> list[m.VolumeMount]:
    read_only = {"tasks", "fleet"}
    return [
        *(
            m.VolumeMount(name=folder, mount_path=f"{paths.ROOT}/{folder}", read_only=True if folder in read_only else None)
            for folder in paths.FOLDERS
            if folder != FOLDER
        ),
        *secrets,
    ]
