"""What a schedule of a node image starts: one pod that reads a branch, and submits the build of what stands there.

It alone has a token of home: its account may submit runs, not change who may do what, nor what starts runs. What the installed spec
names of Secrets, and whose approval it asks for, are among its arguments: no commit changes them.
"""

from collections.abc import Mapping
from typing import Any, Final

from hera.workflows import Container, Env, Workflow
from hera.workflows import models as m

from steps.contract import paths
from workflows.plan.model import Plan
from workflows.render import rbac, steps
from workflows.render.grammar.patches import ARGOS_CONTAINERS
from workflows.spec.fields import SecretKey
from workflows.spec.image_schedule import GitSource

Object = dict[str, Any]
COMMAND: Final = ("python", "-m", "workflows")
VERB: Final = ("image", "from-git")
"""What the one container runs, and its first arguments."""
ENTRYPOINT: Final = "from-git"
ROOM: Final = "1Gi"
"""Of the folder for what is fetched and laid out."""
SECONDS: Final = 900
"""After which the pod ends: image pull, a slow Git server, an API server that is away for a while."""
RIGHTS: rbac.Rights = {
    ("argoproj.io", "workflowtemplates"): frozenset({"get", "create", "patch"}),
    ("argoproj.io", "workflows"): frozenset({"get", "list", "create", "patch"}),
    ("", "configmaps"): frozenset({"get", "create", "patch"}),
    ("", "serviceaccounts"): frozenset({"get"}),
    ("", "persistentvolumeclaims"): frozenset({"get"}),
}
"""What a submission asks of home; no Secrets, since the spec names those that pods mount."""


def account_name(name: str) -> str:
    """The account of the pod."""
    return f"bringup-schedule-{name}"


def secrets_of(plan: Plan) -> tuple[str, ...]:
    """The keys of Secrets that pods of a plan mount, as `SECRET/KEY`."""
    return tuple(sorted({f"{file.secret}/{file.key}" for file in plan.secrets if file.secret}))


def approvers_of(plan: Plan) -> tuple[str, ...]:
    """Whose approval a plan asks for, each with the key that signs it, if any."""
    asked = [stage.approval.approvers for stage in plan.stages if stage.approval is not None]
    return tuple(sorted(" ".join([name, *keys]) for one in asked for name, keys in one.items()))


def account(name: str, labels: Mapping[str, str], space: str) -> list[Object]:
    """Account, Role and binding. The token is mounted because the account says so: Argo leaves that to it."""
    own = rbac.account(account_name(name), space)
    own["automountServiceAccountToken"] = True
    own["metadata"]["labels"] = dict(labels)
    return [own, *rbac.granted(own, space, RIGHTS)]


def workflow_spec(plan: Plan, source: GitSource, settings: steps.Settings) -> Object:
    """The spec of the Workflow that the schedule of an image starts; one at a time, also where a person starts it beside."""
    name = plan.name
    with Workflow(
        generate_name=f"{name}-",
        entrypoint=ENTRYPOINT,
        service_account_name=account_name(name),
        executor=m.ExecutorConfig(service_account_name=steps.EXECUTOR),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration=steps.LOG_READABLE),
        security_context=steps.pod_security(),
        pod_spec_patch=ARGOS_CONTAINERS,
        image_pull_secrets=[m.LocalObjectReference(name=settings.pull_secret)] if settings.pull_secret else None,
        affinity=steps.placement(),
        synchronization=m.Synchronization(mutexes=[m.Mutex(name=f"starts-{name}")]),
        volumes=[m.Volume(name="out", empty_dir=m.EmptyDirVolumeSource(size_limit=m.Quantity(root=ROOM))), *_volumes(source)],
    ) as made:
        Container(
            name=ENTRYPOINT,
            image=settings.builder,
            image_pull_policy="IfNotPresent",
            command=list(COMMAND),
            args=_arguments(plan, source, settings),
            env=[*_environment(settings), *steps.variables(plan.proxies)],
            volume_mounts=_mounts(source),
            active_deadline_seconds=SECONDS,
            retry_strategy=steps.retry(),
            resources=steps.resources(),
            security_context=steps.security(),
            termination_message_policy="FallbackToLogsOnError",  # its last sentence becomes the Workflow's message
        )
    spec: Object = made.to_dict()["spec"]
    return spec


def _arguments(plan: Plan, source: GitSource, settings: steps.Settings) -> list[str]:
    opened = ["--secrets", f"{paths.ROOT}/secrets"] if source.secrets else []
    images = ["--image", settings.image, "--builder-image", settings.builder]
    where = ["--branch", source.branch, "--name", plan.name, "--namespace", settings.namespace]
    used = [word for key in secrets_of(plan) for word in ("--may-use", key)]
    asked = [word for who in approvers_of(plan) for word in ("--approver", who)]
    owner = ["--starter", "{{workflow.name}}"]
    return [*VERB, *where, *images, *opened, *used, *asked, *owner, "--", source.repository, source.path]


def _environment(settings: steps.Settings) -> list[Env]:
    """The folder for what a command remembers, and by which Secret nodes pull the images of the runs that it starts."""
    told = {"BRINGUP_HOME": f"{paths.ROOT}/out", **({"BRINGUP_PULL_SECRET": settings.pull_secret} if settings.pull_secret else {})}
    return [Env(name=key, value=value) for key, value in told.items()]


def _mounts(source: GitSource) -> list[m.VolumeMount]:
    secrets = [m.VolumeMount(name="secrets", mount_path=f"{paths.ROOT}/secrets", read_only=True)] if source.secrets else []
    return [m.VolumeMount(name="out", mount_path=f"{paths.ROOT}/out"), *secrets]


def _volumes(source: GitSource) -> list[m.Volume]:
    """What opens the repository, each under the name of its key in the spec."""
    if not source.secrets:
        return []
    found = [m.VolumeProjection(secret=_projected(name, key)) for name, key in source.secrets.items()]
    return [m.Volume(name="secrets", projected=m.ProjectedVolumeSource(sources=found, default_mode=0o400))]


def _projected(name: str, key: SecretKey) -> m.SecretProjection:
    return m.SecretProjection(name=key.name, items=[m.KeyToPath(key=key.key, path=name)])
