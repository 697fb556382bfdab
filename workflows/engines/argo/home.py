"""Client of the home cluster, which runs Argo Workflows: one kubeconfig, one namespace, and renewal of refused credentials."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from steps.clients.kube import client, kubeconfig
from steps.clients.kube.api import ApiError, Http
from steps.clients.kube.client import Kube
from steps.errors import Refused
from workflows.engines.argo.home_address import DEFAULT_NAMESPACE, HomeAddress, kubeconfig_files
from workflows.engines.argo.workflow_objects import API, CLUSTER, PIPELINE, STARTS, ResourceMeta, Workflow

T = TypeVar("T")
Object = dict[str, Any]


class NoHomeCluster(ValueError):
    """Exception: neither the command line nor the environment names the cluster that runs Argo Workflows."""

    hint = "name the home cluster's kubeconfig with --home-kubeconfig, or set KUBECONFIG"


class NoWorkflow(ValueError):
    """Exception: the home cluster has no Workflow of that name, or none that a command can work with (subclasses)."""

    hint = "a finished Workflow may have been deleted; its evidence stays: bringup pull RUN brings it here"


class WorkflowGone(NoWorkflow):
    """Exception: the Workflow never existed or was deleted."""


class NotOurs(NoWorkflow):
    """Exception: the Workflow, or the WorkflowTemplate that it was made from, was not submitted by bringup."""

    hint = "runs of bringup: kubectl get workflows -l bringup/pipeline, in the namespace that --namespace names"


class StarterWorkflow(NotOurs):
    """Exception: the Workflow was created by a schedule to start a run from Git, so it has neither stages nor evidence."""

    def __init__(self, workflow: Workflow) -> None:
        name, of = workflow.metadata.name, workflow.metadata.labels.get(CLUSTER, "")
        phase = workflow.status.phase or "not begun"
        super().__init__(f"Workflow {name} is not a run: a schedule of {of} created it to start one (phase: {phase})")
        self.hint = f"read its log with `bringup logs --run {name}`, find its run with `bringup schedule show {of}`"


class NoTemplate(NoWorkflow):
    """Exception: the WorkflowTemplate or ConfigMap that a run was made from was deleted from the home cluster."""

    hint = "render the same spec again with `bringup render SPEC --out FOLDER`, apply the result, then try again"


class NamedObject(Struct, frozen=True):
    """The metadata of any object of the home cluster."""

    metadata: ResourceMeta


def choose_home(option: str, context: str, namespace: str, environ: Mapping[str, str]) -> HomeAddress:
    """Return the home cluster of the command line's kubeconfig, else of KUBECONFIG, else of ~/.kube/config, else the pod's own.

    Raises NoHomeCluster if there is none of these.
    """
    files_listed = option or environ.get("KUBECONFIG", "")
    if not files_listed and environ.get("HOME"):
        usual = Path(environ["HOME"]) / ".kube/config"
        files_listed = str(usual) if usual.exists() else ""
    if not files_listed and kubeconfig.is_in_cluster(environ):
        return HomeAddress(kubeconfig="", namespace=namespace or DEFAULT_NAMESPACE)
    if not files_listed:
        raise NoHomeCluster("no kubeconfig of the home cluster is given")
    files = kubeconfig_files(files_listed)
    if not files:
        raise NoHomeCluster(f"{'--home-kubeconfig' if option else 'KUBECONFIG'} is {files_listed!r}, which names no file")
    existing = [file for file in files if file.exists()] or files[:1]
    return HomeAddress(kubeconfig=os.pathsep.join(map(str, existing)), context=context, namespace=namespace or DEFAULT_NAMESPACE)


class Home:
    """A client of the home cluster for one namespace. Not safe for use by several threads at once."""

    def __init__(self, where: HomeAddress) -> None:
        self.where = where
        self.namespace = where.namespace
        self.access = self._read()
        self._connect()

    def _read(self) -> kubeconfig.Access:
        if not self.where.kubeconfig:
            return kubeconfig.in_cluster()
        return kubeconfig.load(*self.where.files, context=self.where.context)

    def _connect(self) -> None:
        self._kube = Kube(self.access)
        self._http = Http(self.access)

    def renew(self) -> bool:
        """Read the kubeconfig again, use its credentials if they changed, and return True if they did."""
        fresh = self._read()
        if fresh == self.access:
            return False
        self.access = fresh
        self._connect()
        return True

    def ask(self, question: Callable[[Kube], T]) -> T:
        """Return the result of `question`, called with the client; if credentials are refused, renew them and call it once more."""
        try:
            return question(self._kube)
        except Refused:
            if not self.renew():
                raise
            return question(self._kube)

    def fetch(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """Return the body of the response to a GET request."""
        try:
            return self._http.request("GET", path, query=query)
        except Refused:
            if not self.renew():
                raise
            return self._http.request("GET", path, query=query)

    # --- paths and objects --------------------------------------------------------------------------------------------

    def core(self, kind: str, name: str = "", namespace: str = "") -> str:
        """Return the API path of core objects in the namespace of the runs, as in `core("pods", NAME)`."""
        return f"/api/v1/namespaces/{namespace or self.namespace}/{kind}{f'/{name}' if name else ''}"

    def argo(self, kind: str, name: str = "") -> str:
        """Return the API path of Argo's objects in the namespace of the runs, as in `argo("cronworkflows", NAME)`."""
        return f"/apis/{API}/namespaces/{self.namespace}/{kind}{f'/{name}' if name else ''}"

    def workflows(self, name: str = "") -> str:
        """Return the API path of all Workflows in the namespace of the runs, or of the one with this name."""
        return self.argo("workflows", name)

    def delete(self, path: str) -> None:
        """Delete the object at an API path; an object that is gone already is no error."""
        self.ask(lambda kube: kube.delete(path))

    def workflow(self, name: str) -> Workflow:
        """Return the Workflow of this name. Raises WorkflowGone, Garbled, NotUnderstood."""
        return decode_workflow(self.raw_workflow(name))

    def raw_workflow(self, name: str) -> bytes:
        """Return a Workflow as the bytes that the API server sends. Raises WorkflowGone."""
        try:
            return self.fetch(self.workflows(name))
        except ApiError as error:
            if error.status == 404:
                raise WorkflowGone(f"namespace {self.namespace} of the home cluster has no Workflow {name}") from None
            raise

    def check_ours(self, workflow: Workflow) -> None:
        """Raise NotOurs for a Workflow that was not made from a WorkflowTemplate, StarterWorkflow for one made by a schedule."""
        if STARTS in workflow.metadata.labels:
            raise StarterWorkflow(workflow)
        if not workflow.template:
            raise NotOurs(f"{self._not_ours(workflow)}: it has no WorkflowTemplate")

    def made_from(self, workflow: Workflow) -> Object:
        """Return the spec of the WorkflowTemplate that a run was made from, as plain data. Raises NotOurs, NoTemplate."""
        self.check_ours(workflow)
        template = self.template(workflow.template)
        if PIPELINE not in (template["metadata"].get("labels") or {}):
            raise NotOurs(f"{self._not_ours(workflow)}: its WorkflowTemplate {workflow.template} does not belong to bringup")
        spec: Object = template["spec"]
        return spec

    def _not_ours(self, workflow: Workflow) -> str:
        return f"Workflow {workflow.metadata.name} in namespace {self.namespace} is not a run of bringup"

    def template(self, name: str) -> Object:
        """Return a WorkflowTemplate as plain data. Raises NoTemplate."""
        template = self.ask(lambda kube: kube.get(self.argo("workflowtemplates", name), dict[str, Any]))
        if template is None:
            raise NoTemplate(f"namespace {self.namespace} of the home cluster has no WorkflowTemplate {name} any more")
        return template

    def templates(self) -> list[ResourceMeta]:
        """Return the metadata of bringup's WorkflowTemplates, the oldest first. Raises Refused."""
        templates = self.ask(lambda kube: kube.list(self.argo("workflowtemplates"), NamedObject, labels=PIPELINE)) or ()
        return sorted((template.metadata for template in templates), key=lambda meta: (meta.creation_timestamp, meta.name))

    def newest_template(self) -> str:
        """Return the name of bringup's newest WorkflowTemplate, or "" if there is none. Raises Refused."""
        return next((meta.name for meta in reversed(self.templates())), "")


def decode_workflow(data: bytes) -> Workflow:
    """Return a Workflow from its JSON. Raises Garbled for data that is not JSON, NotUnderstood for JSON of another shape."""
    return client.decode("reading a Workflow", data, Workflow)
