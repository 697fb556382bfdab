"""Is there an Argo Workflows that can run what we submit? Asked before anything is written; what cannot be told is a refusal."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Resource, ResourceList
from steps.errors import Refused
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import API

OLDEST = (4, 1, 2)
"""4.1.0 and 4.1.1 lose locks and mark terminated runs as Succeeded (hera_argo §2.1)."""

CONTROLLER = "workflow-controller"
USUAL_NAMESPACES = ("argo", "argo-workflows")
NEEDED = ("workflows", "workflowtemplates", "workflowtaskresults")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-+].*)?")


class NoArgo(ValueError):
    """No Argo Workflows that is new enough; the message says what was found."""

    hint = "install Argo Workflows 4.1.2 or newer; where its Deployment may not be read, say --argo-version VERSION"


class _Container(Struct, frozen=True):
    name: str
    image: str = ""


class _PodSpec(Struct, frozen=True):
    containers: tuple[_Container, ...] = ()


class _Template(Struct, frozen=True):
    spec: _PodSpec = _PodSpec()


class _DeploymentSpec(Struct, frozen=True):
    template: _Template = _Template()


class _Meta(Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Deployment(Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: _DeploymentSpec = _DeploymentSpec()


class Controller(Struct, frozen=True, kw_only=True):
    """A workflow-controller: where it runs, its image, and the version that the image's tag names (None: it names none)."""

    namespace: str
    image: str
    version: tuple[int, int, int] | None


def check(home: Home, told: str = "") -> str:
    """The version of the Argo Workflows that serves our namespace; `told` is what a person vouches for. Raises NoArgo, Refused."""
    lacking = [name for name in NEEDED if name not in _served(home)]
    if lacking:
        raise NoArgo(f"the home cluster does not serve {', '.join(lacking)} of {API}: its CRDs are not installed")
    if told:
        return _new_enough(parsed(told), f"--argo-version {told}")
    found = list(_controllers(home))
    if not found:
        places = ", ".join(_places(home))
        raise NoArgo(f"no {CONTROLLER} was found in the namespaces {places} (or they may not be read), so its version is unknown")
    for one in found:
        version = _new_enough(one.version, f"the {CONTROLLER} in namespace {one.namespace} has image {one.image}")
    return version


def parsed(text: str) -> tuple[int, int, int] | None:
    """A version as numbers; None where the text is none."""
    match = _VERSION.fullmatch(text)
    return (int(match[1]), int(match[2]), int(match[3])) if match else None


def _new_enough(version: tuple[int, int, int] | None, where: str) -> str:
    wanted = ".".join(map(str, OLDEST))
    if version is None:
        raise NoArgo(f"{where}, which names no version; Argo Workflows {wanted} or newer is needed")
    if version < OLDEST:
        raise NoArgo(f"{where}; Argo Workflows {wanted} or newer is needed")
    return ".".join(map(str, version))


def _served(home: Home) -> set[str]:
    try:
        found: tuple[Resource, ...] = home.ask(lambda kube: kube.get(f"/apis/{API}", ResourceList) or ResourceList()).resources
    except ApiError as error:
        raise NoArgo(f"the home cluster does not say what it serves: {error}") from error
    return {one.name for one in found}


def _places(home: Home) -> tuple[str, ...]:
    return tuple(dict.fromkeys((home.namespace, *USUAL_NAMESPACES)))


def _controllers(home: Home) -> Iterator[Controller]:
    """Controllers in our namespace first (a namespaced installation), then where they usually are, then anywhere."""
    for path in (*(f"/apis/apps/v1/namespaces/{place}/deployments" for place in _places(home)), "/apis/apps/v1/deployments"):
        found = [one for one in _deployments(home, path) if one is not None]
        if found:
            yield from found
            return


def _deployments(home: Home, path: str) -> Iterator[Controller | None]:
    try:
        rows: Any = home.ask(lambda kube: kube.list(path, _Deployment)) or ()
    except Refused:
        return  # no right to look there: no cluster rights are assumed
    for row in rows:
        for one in row.spec.template.spec.containers:
            if CONTROLLER in (one.name, _repository(one.image).rsplit("/", 1)[-1]):
                yield Controller(namespace=row.metadata.namespace, image=one.image, version=parsed(_tag(one.image)))


def _repository(image: str) -> str:
    name = image.partition("@")[0]
    head, _, tail = name.rpartition(":")
    return head if head and "/" not in tail else name


def _tag(image: str) -> str:
    name = image.partition("@")[0]
    return name.removeprefix(_repository(image)).removeprefix(":")
