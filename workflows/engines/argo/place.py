"""What home must have before anything is installed: the namespace of the runs, at the level of Pod Security that their pods need,
and a volume that all pods of a run can share."""

from msgspec import Struct

from steps.errors import Refused
from workflows.engines.argo.home import Home, Named, Object
from workflows.render.bundle import Bundle

EVERYWHERE, ON_ONE_NODE = "ReadWriteMany", "ReadWriteOnce"
HOSTNAME = "kubernetes.io/hostname"
LEVEL, PRIVILEGED = "pod-security.kubernetes.io/enforce", "privileged"
HINT = "README, A home cluster, shows what to make"


class NoPlace(ValueError):
    """The home cluster lacks something that we do not make ourselves."""

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
    """Raises NoPlace; returns what cannot be told, as warnings. What may not be read at all is left to the pods."""
    if any(_is_root(template) for template in bundle.template["spec"]["templates"]):
        _check_level(home)
    claims = [volume["persistentVolumeClaim"]["claimName"] for volume in _volumes(bundle) if "persistentVolumeClaim" in volume]
    return tuple(warning for claim in claims for warning in _claim(home, claim))


def _is_root(template: Object) -> bool:
    found: Object = template.get("container", {}).get("securityContext", {})
    return found.get("runAsUser") == 0


def _check_level(home: Home) -> None:
    """Pods that build node images. Which level holds without a label is known to the API server alone."""
    try:
        found = home.ask(lambda kube: kube.get(f"/api/v1/namespaces/{home.namespace}", Named))
    except Refused:
        return
    level = found.metadata.labels.get(LEVEL, PRIVILEGED) if found is not None else PRIVILEGED
    if level != PRIVILEGED:
        raise NoPlace(
            f"namespace {home.namespace} of the home cluster is at level {level} of Pod Security, and pods that build node images "
            f"are root: name another one with --namespace, or label it {LEVEL}={PRIVILEGED}"
        )


def _volumes(bundle: Bundle) -> list[Object]:
    found: list[Object] = bundle.template["spec"]["volumes"]
    return found


def _claim(home: Home, claim: str) -> tuple[str, ...]:
    try:
        found = home.ask(lambda kube: kube.get(home.core("persistentvolumeclaims", claim), _Claim))
    except Refused:
        return ()
    if found is None:
        raise _absent(home, claim)
    modes = found.status.access_modes or found.spec.access_modes  # of the volume, once there is one
    if EVERYWHERE in modes:
        return ()
    what = f"PersistentVolumeClaim {claim} in namespace {home.namespace} of the home cluster is {', '.join(modes) or 'of no mode'}"
    if ON_ONE_NODE not in modes:
        raise NoPlace(f"{what}: all pods of a run write it, so it must be {EVERYWHERE}")
    return _on_one_node(home, what, found.spec.volume_name)


def _absent(home: Home, claim: str) -> NoPlace:
    """The namespace is asked for only here: who runs bring-ups need not be able to read it."""
    try:
        there = home.ask(lambda kube: kube.get(f"/api/v1/namespaces/{home.namespace}", Named)) is not None
    except Refused:
        there = True
    if not there:
        return NoPlace(f"the home cluster has no namespace {home.namespace}: make it, or name another with --namespace")
    lacks = f"namespace {home.namespace} of the home cluster has no PersistentVolumeClaim {claim}"
    return NoPlace(f"{lacks}, in which runs keep their evidence")


def _on_one_node(home: Home, what: str, volume: str) -> tuple[str, ...]:
    """A volume that one node at a time holds will do where all pods come to one node: home has no other, or the volume lies on it.

    Anywhere else the pods of all other nodes would wait for it without an end.
    """
    wait = f"pods on any other node than the volume's would wait for it without an end, so make it {EVERYWHERE}"
    try:
        count = len(home.ask(lambda kube: kube.list("/api/v1/nodes", Named)) or ())
        if count <= 1 or (volume and _lies_on_a_node(home, volume)):
            return ()
    except Refused:
        return (f"{what}, and how many nodes there are may not be read: {wait}",)
    raise NoPlace(f"{what}, and there are {count} nodes: {wait}")


def _lies_on_a_node(home: Home, volume: str) -> bool:
    found = home.ask(lambda kube: kube.get(f"/api/v1/persistentvolumes/{volume}", _Volume)) or _Volume()
    terms = found.spec.node_affinity.required.node_selector_terms
    return any(one.key == HOSTNAME for term in terms for one in term.match_expressions)
