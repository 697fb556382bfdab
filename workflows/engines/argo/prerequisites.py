"""Check what the home cluster must have before anything is written there: Argo Workflows, namespace, shared volume, secrets.

A version of Argo that cannot be determined is refused. All missing secrets are named in one message.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from steps.clients.kube.api import ApiError
from steps.clients.kube.client import ResourceList
from steps.errors import Refused
from workflows.engines import run_secrets
from workflows.engines.argo.home import Home, NamedObject
from workflows.engines.argo.workflow_objects import API, ResourceMeta
from workflows.engines.run_secrets import SecretMissing
from workflows.plan.model import Plan
from workflows.render import claim_volumes
from workflows.render.bundle import Bundle
from workflows.spec import ClusterSpec
from workflows.spec.fields import SecretKey
from workflows.spec.parsing.document import value_at
from workflows.stages.host_access import SecretFile

EVERYWHERE, ON_ONE_NODE = "ReadWriteMany", "ReadWriteOnce"
HOSTNAME = "kubernetes.io/hostname"
LEVEL, PRIVILEGED = "pod-security.kubernetes.io/enforce", "privileged"
HINT = "workflows/docs/argo_and_gitops.md shows what an admin creates once"


class PrerequisiteMissing(ValueError):
    """Exception: the home cluster lacks something that bringup does not create itself."""

    hint = HINT


class _ClaimPart(Struct, frozen=True, rename="camel"):
    """The fields that spec and status of a volume claim have in common."""

    access_modes: tuple[str, ...] = ()
    volume_name: str = ""


class _VolumeClaim(Struct, frozen=True):
    spec: _ClaimPart = _ClaimPart()
    status: _ClaimPart = _ClaimPart()


@dataclass(frozen=True)
class _NeededClaim:
    """A volume claim that pods of a run mount: the store of runs, or the published folder."""

    name: str
    is_published: bool

    @property
    def purpose(self) -> str:
        """Return what pods find in the volume, as the end of a sentence."""
        return "which publish.claim names" if self.is_published else "in which runs keep their evidence"

    @property
    def writers(self) -> str:
        """Return which pods write the volume."""
        return "the pods that publish write it" if self.is_published else "all pods of a run write it"


def check_prerequisites(home: Home, bundle: Bundle) -> tuple[str, ...]:
    """Check namespace and volume claim, and return warnings about what could not be checked. Raises PrerequisiteMissing.

    Objects that this account may not read are not checked; the pods of the run then show the problem.
    """
    spec = bundle.template["spec"]
    contexts = (template.get("container", {}).get("securityContext", {}) for template in spec["templates"])
    if any(context.get("runAsUser") == 0 for context in contexts):
        _check_level(home)
    claims = [
        _NeededClaim(volume["persistentVolumeClaim"]["claimName"], is_published=volume["name"] == claim_volumes.VOLUME)
        for volume in spec["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    return tuple(warning for claim in claims for warning in _claim(home, claim))


def _check_level(home: Home) -> None:
    """Raise PrerequisiteMissing if the namespace's Pod Security level forbids pods that run as root, which build node images.

    The level of a namespace without a label is known only to the API server's configuration, so such a namespace is accepted.
    """
    try:
        namespace = home.ask(lambda kube: kube.get(f"/api/v1/namespaces/{home.namespace}", NamedObject))
    except Refused:
        return
    level = namespace.metadata.labels.get(LEVEL, PRIVILEGED) if namespace is not None else PRIVILEGED
    if level != PRIVILEGED:
        raise PrerequisiteMissing(
            f"namespace {home.namespace} of the home cluster is at level {level} of Pod Security, and some pods of this run "
            f"run as root: name another namespace with --namespace, or label this one {LEVEL}={PRIVILEGED}"
        )


def _claim(home: Home, claim: _NeededClaim) -> tuple[str, ...]:
    try:
        volume_claim = home.ask(lambda kube: kube.get(home.core("persistentvolumeclaims", claim.name), _VolumeClaim))
    except Refused:
        return ()
    if volume_claim is None:
        raise _absent(home, claim)
    modes = volume_claim.status.access_modes or volume_claim.spec.access_modes  # the status is set once a volume is bound
    if EVERYWHERE in modes:
        return ()
    where = f"PersistentVolumeClaim {claim.name} in namespace {home.namespace} of the home cluster"
    description = f"{where} is {', '.join(modes) or 'of no mode'}"
    if ON_ONE_NODE not in modes:
        raise PrerequisiteMissing(f"{description}: {claim.writers}, so it must be {EVERYWHERE}")
    return _on_one_node(home, description, volume_claim.spec.volume_name)


def _absent(home: Home, claim: _NeededClaim) -> PrerequisiteMissing:
    """Return (not raise) the error for a missing volume claim; it says so if the whole namespace is missing."""
    try:
        namespace_exists = home.ask(lambda kube: kube.get(f"/api/v1/namespaces/{home.namespace}", NamedObject)) is not None
    except Refused:
        namespace_exists = True
    if not namespace_exists:
        return PrerequisiteMissing(f"the home cluster has no namespace {home.namespace}: make it, or name another with --namespace")
    lacks = f"namespace {home.namespace} of the home cluster has no PersistentVolumeClaim {claim.name}"
    return PrerequisiteMissing(f"{lacks}, {claim.purpose}")


def _on_one_node(home: Home, what: str, volume: str) -> tuple[str, ...]:
    """Return warnings about a volume that only one node at a time can mount; empty if such a volume works here.

    It works if the home cluster has one node, or if the volume is bound to a node, to which the scheduler then sends all pods.
    Raises PrerequisiteMissing otherwise: pods on other nodes would wait for the volume forever.
    """
    wait = f"pods on any other node than the volume's would wait for it without an end, so make it {EVERYWHERE}"
    try:
        count = len(home.ask(lambda kube: kube.list("/api/v1/nodes", NamedObject)) or ())
        if count <= 1 or (volume and _lies_on_a_node(home, volume)):
            return ()
    except Refused:
        return (f"{what}, and how many nodes there are may not be read: {wait}",)
    raise PrerequisiteMissing(f"{what}, and there are {count} nodes: {wait}")


def _lies_on_a_node(home: Home, volume: str) -> bool:
    persistent_volume = home.ask(lambda kube: kube.get(f"/api/v1/persistentvolumes/{volume}", dict[str, Any])) or {}
    terms = value_at(persistent_volume, "spec.nodeAffinity.required.nodeSelectorTerms") or ()
    return any(expression.get("key") == HOSTNAME for term in terms for expression in term.get("matchExpressions", ()))


OLDEST = (4, 1, 2)
"""The oldest version of Argo Workflows that is accepted.

4.1.0 and 4.1.1 lose locks (https://github.com/argoproj/argo-workflows/releases/tag/v4.1.2).
"""

CONTROLLER = "workflow-controller"
USUAL_NAMESPACES = ("argo", "argo-workflows")
NEEDED = ("workflows", "workflowtemplates", "workflowtaskresults")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-+].*)?")


class NoArgo(ValueError):
    """Exception: no Argo Workflows that is new enough was found; the message says what was found instead."""

    hint = "install Argo Workflows 4.1.2 or newer; if its Deployment may not be read, pass --argo-version VERSION"


class _DeployedContainer(Struct, frozen=True):
    name: str
    image: str = ""


class _DeployedPodSpec(Struct, frozen=True):
    containers: tuple[_DeployedContainer, ...] = ()


class _DeploymentTemplate(Struct, frozen=True):
    spec: _DeployedPodSpec = _DeployedPodSpec()


class _DeploymentSpec(Struct, frozen=True):
    template: _DeploymentTemplate = _DeploymentTemplate()


class _Deployment(Struct, frozen=True):
    metadata: ResourceMeta = ResourceMeta()
    spec: _DeploymentSpec = _DeploymentSpec()


def check_argo_version(home: Home, stated_version: str = "") -> str:
    """Return the version of the Argo Workflows that serves the namespace of the runs, as in `4.1.2`.

    `stated_version` is the version given with --argo-version, used where the controller's Deployment may not be read. Raises
    NoArgo if the CRDs are missing or the version is too old or unknown, Refused if the home cluster rejects the credentials.
    """
    try:
        served: ResourceList | None = home.ask(lambda kube: kube.get(f"/apis/{API}", ResourceList))
    except ApiError as error:
        raise NoArgo(f"the API resources of the home cluster cannot be listed: {error}") from error
    names = {resource.name for resource in served.resources} if served else set()
    lacking = [name for name in NEEDED if name not in names]
    if lacking:
        raise NoArgo(f"the home cluster does not serve {', '.join(lacking)} of {API}: its CRDs are not installed")
    if stated_version:
        return _new_enough(parse_version(stated_version), f"--argo-version {stated_version}")
    places = tuple(dict.fromkeys((home.namespace, *USUAL_NAMESPACES)))
    # the runs' namespace (a namespaced installation), else the usual namespaces, else all of them
    paths = (*(f"/apis/apps/v1/namespaces/{place}/deployments" for place in places), "/apis/apps/v1/deployments")
    controllers = next(filter(None, (_controllers(home, path) for path in paths)), [])
    if not controllers:
        named = ", ".join(places)
        raise NoArgo(f"no {CONTROLLER} was found in the namespaces {named} (or they may not be read), so its version is unknown")
    for namespace, image in controllers:  # any of them may take the runs, so all must be new enough
        version = parse_version(_repository_and_tag(image)[1])
        text = _new_enough(version, f"the {CONTROLLER} in namespace {namespace} has image {image}")
    return text


def parse_version(text: str) -> tuple[int, int, int] | None:
    """Return a version as three numbers, or None if the text is not a version."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _new_enough(version: tuple[int, int, int] | None, where: str) -> str:
    oldest = ".".join(map(str, OLDEST))
    if version is None:
        raise NoArgo(f"{where}, which names no version; Argo Workflows {oldest} or newer is needed")
    if version < OLDEST:
        raise NoArgo(f"{where}; Argo Workflows {oldest} or newer is needed")
    return ".".join(map(str, version))


def _controllers(home: Home, path: str) -> list[tuple[str, str]]:
    """Return namespace and image of each workflow-controller among the Deployments at an API path; empty if listing is refused."""
    try:
        deployments = home.ask(lambda kube: kube.list(path, _Deployment)) or ()
    except Refused:
        return []  # this account may not list Deployments there; cluster-wide rights are not required
    return [
        (deployment.metadata.namespace, container.image)
        for deployment in deployments
        for container in deployment.spec.template.spec.containers
        if CONTROLLER in (container.name, _repository_and_tag(container.image)[0].rsplit("/", 1)[-1])
    ]


def _repository_and_tag(image: str) -> tuple[str, str]:
    name = image.partition("@")[0]
    head, _, tail = name.rpartition(":")
    return (head, tail) if head and "/" not in tail else (name, "")  # a colon before a slash begins the registry's port


class SecretOutOfNamespace(ValueError):
    """Exception: the spec names a Secret outside the namespace of the runs, so that their pods could not mount it."""

    hint = "copy it into the namespace of the runs and leave `namespace` out, or choose that namespace with --namespace"


class _Secret(Struct, frozen=True):
    data: dict[str, str] = {}


def check_namespaces(spec: ClusterSpec, home: Home) -> None:
    """Raise SecretOutOfNamespace if the spec names a Secret in another namespace than that of the runs."""
    others = [reference for reference in _references(spec) if reference.namespace not in (None, home.namespace)]
    if others:
        named = ", ".join(dict.fromkeys(f"{reference.namespace}/{reference.name}" for reference in others))
        raise SecretOutOfNamespace(
            f"the spec names Secret {named}, but runs in namespace {home.namespace} can only mount Secrets of that namespace"
        )


def _references(value: Any) -> Iterator[SecretKey]:
    if isinstance(value, SecretKey):
        yield value
    elif isinstance(value, BaseModel):
        yield from _references([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, Mapping):
        yield from _references(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)


def collect_secrets(home: Home, plan: Plan, spec_folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return file name → content for the secrets from this machine's files and variables.

    Secrets of the home cluster are only checked, as far as this account may read them. Raises SecretMissing, which names all that
    are missing or unusable.
    """
    in_home = (_unusable(home, file) for file in plan.secrets if file.secret)
    missing, hint, contents = list(filter(None, in_home)), "", dict[str, bytes]()
    try:
        contents = run_secrets.read_secrets([file for file in plan.secrets if not file.secret], spec_folder, environ)
    except SecretMissing as error:
        missing.insert(0, str(error))
        hint = error.hint
    if missing:
        raise SecretMissing("; ".join(missing), hint)
    return contents


def fetch_secret(home: Home, file: SecretFile) -> bytes:
    """Return the content of a Secret's key in the home cluster. Raises SecretMissing if it is missing, unusable or unreadable."""
    try:
        return run_secrets.check_secret(file, _content(home, file))
    except Refused as error:
        sentence = f"secret {file.name}: Secret {file.secret} in namespace {home.namespace} of the home cluster: {error}"
        raise SecretMissing(sentence) from error


def _unusable(home: Home, file: SecretFile) -> str:
    """Return a sentence if the home cluster lacks a secret or holds it in an unusable form; "" if it is fine or may not be read."""
    try:
        content = _content(home, file)
    except Refused:
        return ""  # accounts that submit runs need no right to read Secrets
    except SecretMissing as error:
        return str(error)
    try:
        run_secrets.check_secret(file, content)
    except SecretMissing as error:
        return f"Secret {file.secret} of the home cluster, key {file.key}: {error}"
    return ""


def _content(home: Home, file: SecretFile) -> bytes:
    """Return the content of a Secret's key in the home cluster. Raises SecretMissing if it is missing, Refused if not allowed."""
    kube_secret = home.ask(lambda kube: kube.get(home.core("secrets", file.secret), _Secret))
    if kube_secret is None:
        raise SecretMissing(f"secret {file.name}: namespace {home.namespace} of the home cluster has no Secret {file.secret}")
    if file.key not in kube_secret.data:
        raise SecretMissing(f"secret {file.name}: Secret {file.secret} of the home cluster has no key {file.key}")
    return base64.b64decode(kube_secret.data[file.key])
