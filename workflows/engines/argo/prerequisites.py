"""Check of what the home cluster must have before a run is installed: namespace, Pod Security level, and a shared volume."""

from msgspec import Struct

from steps.errors import Refused
from workflows.engines.argo.home import Home, NamedObject, Object
from workflows.render.bundle import Bundle

EVERYWHERE, ON_ONE_NODE = "ReadWriteMany", "ReadWriteOnce"
HOSTNAME = "kubernetes.io/hostname"
LEVEL, PRIVILEGED = "pod-security.kubernetes.io/enforce", "privileged"
HINT = "workflows/docs/argo_and_gitops.md shows what an admin creates once"


class PrerequisiteMissing(ValueError):
    """The home cluster lacks something that bringup does not create itself."""

    hint = HINT


class _ClaimSpec(Struct, frozen=True, rename="camel"):
    access_modes: tuple[str, ...] = ()
    volume_name: str = ""


class _ClaimStatus(Struct, frozen=True, rename="camel"):
    access_modes: tuple[str, ...] = ()


class _Claim(Struct, frozen=True):
    spec: _ClaimSpec = _ClaimSpec()
    status: _ClaimStatus = _ClaimStatus()


class _Match(Struct, frozen=True):
    key: str = ""


class _Term(Struct, frozen=True, rename="camel"):
    match_expressions: tuple[_Match, ...] = ()


class _Required(Struct, frozen=True, rename="camel"):
    node_selector_terms: tuple[_Term, ...] = ()


class _Affinity(Struct, frozen=True):
    required: _Required = _Required()


class _VolumeSpec(Struct, frozen=True, rename="camel"):
    node_affinity: _Affinity = _Affinity()


class _Volume(Struct, frozen=True):
    spec: _VolumeSpec = _VolumeSpec()


def check(home: Home, bundle: Bundle) -> tuple[str, ...]:
    """Raise PrerequisiteMissing if the namespace or the volume claim is unusable; return warnings about what could not be checked.

    Objects that this account may not read are not checked; the pods of the run then show the problem.
    """
    if any(_is_root(template) for template in bundle.template["spec"]["templates"]):
        _check_level(home)
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in _volumes(bundle) if "persistentVolumeClaim" in volume]
    return tuple(warning for claim in claims for warning in _claim(home, claim))


def _is_root(template: Object) -> bool:
    context: Object = template.get("container", {}).get("securityContext", {})
    return context.get("runAsUser") == 0


def _check_level(home: Home) -> None:
    """Raise PrerequisiteMissing if the namespace forbids pods that run as root (those that build node images).

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


def _volumes(bundle: Bundle) -> list[Object]:
    volumes: list[Object] = bundle.template["spec"]["volumes"]
    return volumes


def _claim(home: Home, claim: str) -> tuple[str, ...]:
    try:
        volume_claim = home.ask(lambda kube: kube.get(home.core("persistentvolumeclaims", claim), _Claim))
    except Refused:
        return ()
    if volume_claim is None:
        raise _absent(home, claim)
    modes = volume_claim.status.access_modes or volume_claim.spec.access_modes  # the status is set once a volume is bound
    if EVERYWHERE in modes:
        return ()
    description = (
        f"PersistentVolumeClaim {claim} in namespace {home.namespace} of the home cluster is {', '.join(modes) or 'of no mode'}"
    )
    if ON_ONE_NODE not in modes:
        raise PrerequisiteMissing(f"{description}: all pods of a run write it, so it must be {EVERYWHERE}")
    return _on_one_node(home, description, volume_claim.spec.volume_name)


def _absent(home: Home, claim: str) -> PrerequisiteMissing:
    """Return the error for a missing volume claim: the namespace may be missing altogether."""
    try:
        namespace_exists = home.ask(lambda kube: kube.get(f"/api/v1/namespaces/{home.namespace}", NamedObject)) is not None
    except Refused:
        namespace_exists = True
    if not namespace_exists:
        return PrerequisiteMissing(f"the home cluster has no namespace {home.namespace}: make it, or name another with --namespace")
    lacks = f"namespace {home.namespace} of the home cluster has no PersistentVolumeClaim {claim}"
    return PrerequisiteMissing(f"{lacks}, in which runs keep their evidence")


def _on_one_node(home: Home, what: str, volume: str) -> tuple[str, ...]:
    """Return warnings about a volume that only one node at a time can mount.

    Such a volume works if the home cluster has one node, or if the volume is bound to a node, to which the scheduler then sends all
    pods. Raises PrerequisiteMissing otherwise: pods on other nodes would wait for the volume forever.
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
    persistent_volume = home.ask(lambda kube: kube.get(f"/api/v1/persistentvolumes/{volume}", _Volume)) or _Volume()
    terms = persistent_volume.spec.node_affinity.required.node_selector_terms
    return any(expression.key == HOSTNAME for term in terms for expression in term.match_expressions)
