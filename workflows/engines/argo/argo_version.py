"""Check of the Argo Workflows installation in the home cluster: CRDs are served and the controller is new enough.

`bringup run` checks this before it writes anything. A version that cannot be determined is refused.
"""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Resource, ResourceList
from steps.errors import Refused
from workflows.engines.argo.home import Home
from workflows.engines.argo.workflow_objects import API

OLDEST = (4, 1, 2)
"""The oldest usable version: 4.1.0 and 4.1.1 lose locks (https://github.com/argoproj/argo-workflows/releases/tag/v4.1.2)."""

CONTROLLER = "workflow-controller"
USUAL_NAMESPACES = ("argo", "argo-workflows")
NEEDED = ("workflows", "workflowtemplates", "workflowtaskresults")
_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:[-+].*)?")


class NoArgo(ValueError):
    """No Argo Workflows that is new enough was found; the message says what was found instead."""

    hint = "install Argo Workflows 4.1.2 or newer; if its Deployment may not be read, pass --argo-version VERSION"


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


class _Controller(Struct, frozen=True, kw_only=True):
    """A workflow-controller: its namespace, its image, and the version in the image's tag (None if the tag is no version)."""

    namespace: str
    image: str
    version: tuple[int, int, int] | None


def check(home: Home, told: str = "") -> str:
    """Return the version of the Argo Workflows that serves the namespace of the runs.

    `told` is the version given with --argo-version, used where the controller's Deployment may not be read. Raises NoArgo if the
    CRDs are missing or the version is too old or unknown, Refused if the home cluster rejects the credentials.
    """
    lacking = [name for name in NEEDED if name not in _served(home)]
    if lacking:
        raise NoArgo(f"the home cluster does not serve {', '.join(lacking)} of {API}: its CRDs are not installed")
    if told:
        return _new_enough(parse_version(told), f"--argo-version {told}")
    controllers = list(_controllers(home))
    if not controllers:
        places = ", ".join(_places(home))
        raise NoArgo(f"no {CONTROLLER} was found in the namespaces {places} (or they may not be read), so its version is unknown")
    for controller in controllers:
        version = _new_enough(
            controller.version, f"the {CONTROLLER} in namespace {controller.namespace} has image {controller.image}"
        )
    return version


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


def _served(home: Home) -> set[str]:
    try:
        resources: tuple[Resource, ...] = home.ask(lambda kube: kube.get(f"/apis/{API}", ResourceList) or ResourceList()).resources
    except ApiError as error:
        raise NoArgo(f"the API resources of the home cluster cannot be listed: {error}") from error
    return {resource.name for resource in resources}


def _places(home: Home) -> tuple[str, ...]:
    return tuple(dict.fromkeys((home.namespace, *USUAL_NAMESPACES)))


def _controllers(home: Home) -> Iterator[_Controller]:
    """Find controllers in the runs' namespace (a namespaced installation), else in the usual namespaces, else in all of them."""
    for path in (*(f"/apis/apps/v1/namespaces/{place}/deployments" for place in _places(home)), "/apis/apps/v1/deployments"):
        controllers = [controller for controller in _deployments(home, path) if controller is not None]
        if controllers:
            yield from controllers
            return


def _deployments(home: Home, path: str) -> Iterator[_Controller | None]:
    try:
        rows: Any = home.ask(lambda kube: kube.list(path, _Deployment)) or ()
    except Refused:
        return  # this account may not list Deployments there; cluster-wide rights are not required
    for row in rows:
        for container in row.spec.template.spec.containers:
            if CONTROLLER in (container.name, _repository(container.image).rsplit("/", 1)[-1]):
                yield _Controller(
                    namespace=row.metadata.namespace, image=container.image, version=parse_version(_tag(container.image))
                )


def _repository(image: str) -> str:
    name = image.partition("@")[0]
    head, _, tail = name.rpartition(":")
    return head if head and "/" not in tail else name


def _tag(image: str) -> str:
    name = image.partition("@")[0]
    return name.removeprefix(_repository(image)).removeprefix(":")
