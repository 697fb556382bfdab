"""The home cluster: one kubeconfig, one namespace; credentials that were refused are read again, since they may be renewed."""

import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from steps.clients.kube import client, kubeconfig
from steps.clients.kube.api import ApiError, Http
from steps.clients.kube.client import Kube
from steps.errors import Refused
from workflows import places
from workflows.engines.argo.objects import API, CLUSTER, PIPELINE, STARTS, Meta, Workflow

T = TypeVar("T")
DEFAULT_NAMESPACE = "bringup"
Object = dict[str, Any]


class NoHomeCluster(ValueError):
    """Nothing says where Argo Workflows run."""

    hint = "name the home cluster's kubeconfig with --home-kubeconfig, or set KUBECONFIG"


class NoWorkflow(ValueError):
    """The home cluster has no Workflow of that name."""

    hint = "a finished Workflow may have been deleted; its evidence stays: bringup pull RUN brings it here"


class WorkflowGone(NoWorkflow):
    """There is none of that name, or not any more."""


class NotOurs(NoWorkflow):
    """The Workflow, or what its run was made from, is not what bringup submits."""

    hint = "runs of bringup: kubectl get workflows -l bringup/pipeline, in the namespace that --namespace names"


class OnlyStarts(NotOurs):
    """The Workflow is one of a schedule, which reads a repository and starts a run: it has no stages and no evidence."""

    def __init__(self, workflow: Workflow) -> None:
        name, of = workflow.metadata.name, workflow.metadata.labels.get(CLUSTER, "")
        super().__init__(f"Workflow {name} is no run: it starts those of {of}, and {workflow.status.phase or 'has not begun'}")
        self.hint = f"what it said: bringup logs --run {name}; what it started: bringup schedule show {of}"


class NoTemplate(NoWorkflow):
    """What a run was made from was deleted from home."""

    hint = "what the same spec renders to has the same name: apply what `bringup render SPEC --out FOLDER` writes, then try again"


class Named(Struct, frozen=True):
    """Any object of home, as far as it has a name."""

    metadata: Meta


class Where(Struct, frozen=True, kw_only=True):
    """Which home cluster: a kubeconfig (a file, or several as `KUBECONFIG` lists them; empty: the one whose pod this is), a context
    in it (empty: the current one), and the namespace of the runs."""

    kubeconfig: str
    context: str = ""
    namespace: str = DEFAULT_NAMESPACE

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of its kubeconfig."""
        return _files(self.kubeconfig)

    @property
    def options(self) -> str:
        """What finds it on a command line, also where this machine remembers nothing of a run."""
        told = {"--home-kubeconfig": self.kubeconfig, "--home-context": self.context, "--namespace": self.namespace}
        return " ".join(f"{name} {shlex.quote(value)}" for name, value in told.items() if value)


def chosen(given: str, context: str, namespace: str, environ: Mapping[str, str]) -> Where:
    """The home cluster that the command line names, else the environment's, else that of the pod. Raises NoHomeCluster."""
    listed = given or environ.get("KUBECONFIG", "")
    if not listed and environ.get("HOME"):
        usual = Path(environ["HOME"]) / ".kube/config"
        listed = str(usual) if usual.exists() else ""
    if not listed and kubeconfig.is_in_cluster(environ):
        return Where(kubeconfig="", namespace=namespace or DEFAULT_NAMESPACE)
    if not listed:
        raise NoHomeCluster("no kubeconfig of the home cluster is given")
    files = _files(listed)
    if not files:
        raise NoHomeCluster(f"{'--home-kubeconfig' if given else 'KUBECONFIG'} is {listed!r}, which names no file")
    there = [file for file in files if file.exists()] or files[:1]
    return Where(kubeconfig=os.pathsep.join(map(str, there)), context=context, namespace=namespace or DEFAULT_NAMESPACE)


def _files(listed: str) -> tuple[Path, ...]:
    """One file, or several as `KUBECONFIG` lists them."""
    names = [listed] if places.expanded(listed).exists() else [name for name in listed.split(os.pathsep) if name]
    return tuple(places.expanded(name).absolute() for name in names)


class Home:
    """Requests to the home cluster. Not for several threads at once."""

    def __init__(self, where: Where) -> None:
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
        """Read the kubeconfig again; whether it says something new now."""
        fresh = self._read()
        if fresh == self.access:
            return False
        self.access = fresh
        self._connect()
        return True

    def ask(self, question: Callable[[Kube], T]) -> T:
        """One use of the client; once more with renewed credentials when they were refused."""
        try:
            return question(self._kube)
        except Refused:
            if not self.renew():
                raise
            return question(self._kube)

    def fetch(self, path: str, query: dict[str, str] | None = None) -> bytes:
        """The body of a GET, whole."""
        try:
            return self._http.request("GET", path, query=query)
        except Refused:
            if not self.renew():
                raise
            return self._http.request("GET", path, query=query)

    # --- paths and objects --------------------------------------------------------------------------------------------

    def core(self, kind: str, name: str = "", namespace: str = "") -> str:
        """Path of core objects in our namespace: `core("pods", NAME)`."""
        return f"/api/v1/namespaces/{namespace or self.namespace}/{kind}{f'/{name}' if name else ''}"

    def workflows(self, name: str = "") -> str:
        """Path of Workflows in our namespace."""
        return f"/apis/{API}/namespaces/{self.namespace}/workflows{f'/{name}' if name else ''}"

    def workflow(self, name: str) -> Workflow:
        """One Workflow. Raises WorkflowGone, Garbled, NotUnderstood."""
        return decoded(self.raw_workflow(name))

    def raw_workflow(self, name: str) -> bytes:
        """One Workflow as the API server sends it. Raises WorkflowGone."""
        try:
            return self.fetch(self.workflows(name))
        except ApiError as error:
            if error.status == 404:
                raise WorkflowGone(f"namespace {self.namespace} of the home cluster has no Workflow {name}") from None
            raise

    def check_ours(self, workflow: Workflow) -> None:
        """Raise NotOurs for a Workflow that was not made from a WorkflowTemplate, OnlyStarts for one of a schedule."""
        if STARTS in workflow.metadata.labels:
            raise OnlyStarts(workflow)
        if not workflow.template:
            raise NotOurs(f"{self._not_ours(workflow)}: it has no WorkflowTemplate")

    def made_from(self, workflow: Workflow) -> Object:
        """The spec of the WorkflowTemplate that a run of ours was made from, as plain data. Raises NotOurs, NoTemplate."""
        self.check_ours(workflow)
        template = self.template(workflow.template)
        if PIPELINE not in (template["metadata"].get("labels") or {}):
            raise NotOurs(f"{self._not_ours(workflow)}: its WorkflowTemplate {workflow.template} is none of bringup")
        spec: Object = template["spec"]
        return spec

    def _not_ours(self, workflow: Workflow) -> str:
        return f"Workflow {workflow.metadata.name} in namespace {self.namespace} is no run of ours"

    def template(self, name: str) -> Object:
        """A WorkflowTemplate as plain data. Raises NoTemplate."""
        found = self.ask(lambda kube: kube.get(f"/apis/{API}/namespaces/{self.namespace}/workflowtemplates/{name}", dict[str, Any]))
        if found is None:
            raise NoTemplate(f"namespace {self.namespace} of the home cluster has no WorkflowTemplate {name} any more")
        return found

    def templates(self) -> list[Meta]:
        """The WorkflowTemplates of ours, in the order in which they were made. Raises Refused."""
        path = f"/apis/{API}/namespaces/{self.namespace}/workflowtemplates"
        every = self.ask(lambda kube: kube.list(path, Named, labels=PIPELINE)) or ()
        return sorted((one.metadata for one in every), key=lambda meta: (meta.creation_timestamp, meta.name))

    def newest_template(self) -> str:
        """Name of the one that was made last; empty where there is none. Raises Refused."""
        return next((meta.name for meta in reversed(self.templates())), "")


def decoded(data: bytes) -> Workflow:
    """A Workflow from its JSON. Raises Garbled for what is no JSON, NotUnderstood for JSON of another form."""
    return client.decoded("reading a Workflow", data, Workflow)
