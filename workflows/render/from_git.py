"""The pod that the schedule of a node image or a software stack starts: it reads a Git branch and submits the build of its spec.

Only this pod has a token of the home cluster. Its account may submit runs; it may not change rights, schedules or events. The
Secrets that the installed spec names, its approvers, and the folder that it publishes to are arguments of the pod, so that no
commit can change them.
"""

from collections.abc import Mapping
from typing import Any, Final

from hera.workflows import Container, Workflow
from hera.workflows import models as m

from steps.contract import paths
from workflows.plan.model import Plan
from workflows.render import claim_volumes, rbac, steps
from workflows.render.grammar.field_rules import ARGOS_CONTAINERS
from workflows.spec.pipelines.git_schedule import GitSource
from workflows.stages.stage import ClaimMount

Object = dict[str, Any]
COMMAND: Final = ("python", "-m", "workflows")
IMAGE: Final = "image"
KINDS: Final = (IMAGE, "stack")
"""Pipelines whose runs a branch may start."""
VERB: Final = "from-git"
"""Command line of the pod's only container: COMMAND, the pipeline and VERB."""
ENTRYPOINT: Final = "from-git"
SCRATCH_SIZE: Final = "1Gi"
"""Size limit of the folder for fetched and unpacked files."""
POD_SECONDS: Final = 900
"""Seconds after which Argo ends the pod: image pull, a slow Git server, an API server that is away for a while."""
RIGHTS: rbac.Rights = {
    ("argoproj.io", "workflowtemplates"): frozenset({"get", "create", "patch"}),
    ("argoproj.io", "workflows"): frozenset({"get", "list", "create", "patch"}),
    ("", "configmaps"): frozenset({"get", "create", "patch"}),
    ("", "serviceaccounts"): frozenset({"get"}),
    ("", "persistentvolumeclaims"): frozenset({"get"}),
}
"""Rights in the home cluster that a submission needs. They exclude Secrets, because the spec names the Secrets that pods mount."""


def account_name(name: str, kind: str = IMAGE) -> str:
    """Return the name of the ServiceAccount of the pod that a schedule starts for the image or stack `name`.

    An image and a stack of one name have accounts of their own, so that neither loses its account with the other's schedule.
    """
    return f"bringup-schedule-{name}" if kind == IMAGE else f"bringup-{kind}-schedule-{name}"


def template_name(name: str, kind: str) -> str:
    """Return the name of the WorkflowTemplate whose Workflows read a branch and start builds of the image or stack `name`."""
    return f"{kind}-{name}-{VERB}"


def secrets_of(plan: Plan) -> tuple[str, ...]:
    """Return the sorted keys of Kubernetes Secrets that a plan's pods mount, each with its role: `ROLE=SECRET/KEY`.

    The role is the name of the file in the secrets folder. It keeps a commit from sending the key that signs to a registry as a
    password, or from giving the key of the boot server to the commands of a recipe.
    """
    return tuple(sorted({f"{file.name}={file.secret}/{file.key}" for file in plan.secrets if file.secret}))


def approvers_of(plan: Plan) -> tuple[str, ...]:
    """Return the sorted approvers of a plan as `NAME`, or `NAME KEY` if the approver must sign with an SSH key."""
    per_stage = [stage.approval.approvers for stage in plan.stages if stage.approval is not None]
    return tuple(sorted(" ".join([name, *keys]) for approvers in per_stage for name, keys in approvers.items()))


def claim_text(claim: ClaimMount) -> str:
    """Return a claim with the folder in it as one word: `CLAIM`, or `CLAIM/FOLDER`."""
    return f"{claim.claim}/{claim.folder}" if claim.folder else claim.claim


def account(kind: str, name: str, labels: Mapping[str, str], space: str) -> list[Object]:
    """Return ServiceAccount, Role and RoleBinding for the pod that the schedule of an image or stack starts.

    The account itself asks for a mounted token, because the Workflow leaves that choice to the account.
    """
    own = rbac.account(account_name(name, kind), space)
    own["automountServiceAccountToken"] = True
    own["metadata"]["labels"] = dict(labels)
    return [own, *rbac.role_and_binding(own, space, RIGHTS)]


def workflow_spec(kind: str, plan: Plan, source: GitSource, settings: steps.Settings) -> Object:
    """Return the spec of the template that a schedule starts, with one pod that reads Git and submits the build.

    A mutex admits one such Workflow at a time, also if a person starts one. The pod may read the published folder, if pods have it,
    so that an unchanged product starts no run.
    """
    name, claim = plan.name, claim_volumes.claim_of(plan)
    scratch = m.Volume(name="out", empty_dir=m.EmptyDirVolumeSource(size_limit=m.Quantity(root=SCRATCH_SIZE)))
    mounts = [m.VolumeMount(name="out", mount_path=f"{paths.ROOT}/out")]
    mounts += [m.VolumeMount(name="secrets", mount_path=f"{paths.ROOT}/secrets", read_only=True)] if source.secrets else []
    mounts += claim_volumes.mounts(claim, is_read_only=True)
    # the folder for the command's state, and the pull secret for the runs that it starts
    environment = {"BRINGUP_HOME": f"{paths.ROOT}/out"}
    environment |= {"BRINGUP_PULL_SECRET": settings.pull_secret} if settings.pull_secret else {}
    with Workflow(
        generate_name=f"{name}-",
        entrypoint=ENTRYPOINT,
        service_account_name=account_name(name, kind),
        executor=m.ExecutorConfig(service_account_name=steps.EXECUTOR),
        pod_gc=m.PodGC(strategy="OnPodSuccess", delete_delay_duration=steps.LOG_READABLE),
        security_context=steps.pod_security(),
        pod_spec_patch=ARGOS_CONTAINERS,
        image_pull_secrets=[m.LocalObjectReference(name=settings.pull_secret)] if settings.pull_secret else None,
        affinity=steps.placement(),
        synchronization=m.Synchronization(mutexes=[m.Mutex(name=f"starts-{name}")]),
        volumes=[scratch, *([_credentials(source)] if source.secrets else []), *claim_volumes.volumes(claim)],
    ) as workflow:
        Container(
            name=ENTRYPOINT,
            image=settings.builder,
            image_pull_policy="IfNotPresent",
            command=list(COMMAND),
            args=_arguments(kind, plan, source, settings),
            env=steps.variables({**environment, **plan.proxies}),
            volume_mounts=mounts,
            active_deadline_seconds=POD_SECONDS,
            retry_strategy=steps.retry(),
            resources=steps.resources(),
            security_context=steps.security(),
            # the last line of the log becomes the message of the Workflow
            termination_message_policy="FallbackToLogsOnError",
        )
    spec: Object = workflow.to_dict()["spec"]
    return spec


def _arguments(kind: str, plan: Plan, source: GitSource, settings: steps.Settings) -> list[str]:
    folder = ["--secrets", f"{paths.ROOT}/secrets"] if source.secrets else []
    images = ["--image", settings.image, "--builder-image", settings.builder]
    options = ["--branch", source.branch, "--name", plan.name, "--namespace", settings.namespace]
    secrets = [word for key in secrets_of(plan) for word in ("--may-use", key)]
    approvers = [word for approver in approvers_of(plan) for word in ("--approver", approver)]
    owner = ["--starter", "{{workflow.name}}"]
    limits = [*_published(kind, plan), *secrets, *approvers]
    return [kind, VERB, *options, *images, *folder, *limits, *owner, "--", source.repository, source.path]


def _published(kind: str, plan: Plan) -> list[str]:
    """Return the options with the folder and the build cache that builds may use. The command for images has none of them."""
    claim = claim_volumes.claim_of(plan)
    # images are built on Argo always
    engine = [] if kind == IMAGE else ["--engine", "argo"]
    cache = ["--cache", plan.starts.cache] if plan.starts is not None and plan.starts.cache else []
    return [*engine, *(["--root", claim.path, "--claim", claim_text(claim)] if claim is not None else []), *cache]


def _credentials(source: GitSource) -> m.Volume:
    """Return the volume with the credentials for the Git repository, each in a file named as its key in the spec."""
    secrets = (
        m.SecretProjection(name=key.name, items=[m.KeyToPath(key=key.key, path=name)]) for name, key in source.secrets.items()
    )
    projections = [m.VolumeProjection(secret=secret) for secret in secrets]
    return m.Volume(name="secrets", projected=m.ProjectedVolumeSource(sources=projections, default_mode=0o400))
