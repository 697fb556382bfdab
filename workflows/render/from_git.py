"""What a schedule of a node image starts: one pod that reads a branch, and submits the build of what stands there.

It alone has a token of home: its account may submit runs, not change who may do what, nor what starts runs.
"""

from collections.abc import Mapping
from typing import Any, Final

from hera.workflows import Container, Env, Workflow
from hera.workflows import models as m

from steps.contract import paths
from workflows.render import rbac, steps
from workflows.spec.fields import SecretKey
from workflows.spec.image_schedule import GitSource

Object = dict[str, Any]
COMMAND: Final = ("python", "-m", "workflows")
VERB: Final = ("image", "from-git")
"""What the one container runs, and its first arguments."""
ENTRYPOINT: Final = "from-git"
SECONDS: Final = 900
"""After which the pod ends: image pull, a slow Git server, an API server that is away for a while."""
RIGHTS: rbac.Rights = {
    ("argoproj.io", "workflowtemplates"): frozenset({"get", "create", "patch"}),
    ("argoproj.io", "workflows"): frozenset({"get", "list", "create", "patch"}),
    ("", "configmaps"): frozenset({"get", "create", "patch"}),
    ("", "secrets"): frozenset({"create", "patch"}),
    ("", "serviceaccounts"): frozenset({"get"}),
    ("", "persistentvolumeclaims"): frozenset({"get"}),
}
"""What a submission asks of home. Known hosts of the boot server travel in a Secret, hence those; none of them is read."""


def account_name(name: str) -> str:
    """The account of the pod."""
    return f"bringup-schedule-{name}"


def account(name: str, labels: Mapping[str, str], space: str) -> list[Object]:
    """Account, Role and binding. The token is mounted because the account says so: Argo leaves that to it."""
    own = rbac.account(account_name(name), space)
    own["automountServiceAccountToken"] = True
    own["metadata"]["labels"] = dict(labels)
    return [own, *rbac.granted(own, space, RIGHTS)]


def workflow_spec(name: str, source: GitSource, settings: steps.Settings) -> Object:
    """The spec of the Workflow that the schedule of image `name` starts."""
    with Workflow(
        generate_name=f"{name}-",
        entrypoint=ENTRYPOINT,
        service_account_name=account_name(name),
        executor=m.ExecutorConfig(service_account_name=steps.EXECUTOR),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration=steps.LOG_READABLE),
        security_context=steps.pod_security(),
        image_pull_secrets=[m.LocalObjectReference(name=settings.pull_secret)] if settings.pull_secret else None,
        affinity=steps.placement(),
        volumes=[m.Volume(name="out", empty_dir=m.EmptyDirVolumeSource()), *_volumes(source)],
    ) as made:
        Container(
            name=ENTRYPOINT,
            image=settings.builder,
            image_pull_policy="IfNotPresent",
            command=list(COMMAND),
            args=_arguments(name, source, settings),
            env=_environment(settings),
            volume_mounts=_mounts(source),
            active_deadline_seconds=SECONDS,
            retry_strategy=steps.retry(),
            resources=steps.resources(),
            security_context=steps.security(),
        )
    spec: Object = made.to_dict()["spec"]
    return spec


def _arguments(name: str, source: GitSource, settings: steps.Settings) -> list[str]:
    opened = ["--secrets", f"{paths.ROOT}/secrets"] if source.secrets else []
    images = ["--image", settings.image, "--builder-image", settings.builder]
    where = ["--branch", source.branch, "--name", name, "--namespace", settings.namespace]
    return [*VERB, source.repository, source.path, *where, *images, *opened]


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
