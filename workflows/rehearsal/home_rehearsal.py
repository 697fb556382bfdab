"""A rehearsal on Argo: the plan's manifests for a simulated cluster in a pod of home, and the objects of that pod.

The manifests are those of a real run but for the rehearsal's environment: variables that name the simulator, and stand-ins in place
of the plan's secrets. The pod runs the builder image, which has bringup's own code beside the steps'.
"""

import base64
import copy
import dataclasses
import datetime
import gzip
import hashlib
import random
import secrets
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec

from steps import timeouts
from steps.clients.environment import GIT_ROOT, SIMULATOR, SIMULATOR_PIN, SIMULATOR_TOKEN
from steps.contract import paths
from workflows.engines.argo import run_pods
from workflows.engines.argo.helper_pods import ERRAND
from workflows.engines.argo.home import Home, Object
from workflows.engines.argo.run_pods import RunPod
from workflows.engines.argo.workflow_objects import Workflow
from workflows.plan.model import Plan
from workflows.rehearsal.apiserver.emulated_server import self_signed
from workflows.rehearsal.earlier_stages import STAND_INS
from workflows.rehearsal.home_pod import PACKED_FLEET
from workflows.rehearsal.simulated_cluster import fleet_document
from workflows.render import names, steps, titles
from workflows.render.bundle import Bundle
from workflows.render.secret_volumes import FOLDER

REHEARSAL = "rehearsal"
"""Value of the label `bringup/errand` of the simulating pod, and of the label `bringup/rehearsal` of its run."""
LABEL = "bringup/rehearsal"
FILES = f"{paths.ROOT}/{FOLDER}"
LONGEST = 24 * 3600
"""Seconds after which home ends the pod, in case nobody deletes it."""
_LONGEST_CLUSTER = 30
_PORTS = range(20000, 30000)


class NotSimulated(RuntimeError):
    """Raised if the pod that simulates the cluster does not come up; the message says what it waits for."""

    exit_code = 75
    hint = "the pod runs the builder image: is it on the nodes, or in the registry that --builder-image names?"


@dataclass(frozen=True, kw_only=True)
class HomeRehearsal:
    """The names, addresses and secrets of one rehearsal on Argo."""

    run: str
    name: str
    """Name of the pod, its Service and its Secret."""
    host: str
    """DNS name of the Service."""
    api_port: int
    control_port: int
    token: str
    certificate: str
    key: str

    @property
    def pin(self) -> str:
        """Return the SHA-256 digest of the certificate, by which steps know the simulator."""
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(self.certificate)).hexdigest()

    @property
    def git_root(self) -> str:
        """Return the folder of the run store that stands for all Git servers."""
        return f"{paths.ROOT}/store/rehearsals/{self.run}/git"

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables by which steps use the simulated hosts, clock and Git servers.

        The token opens nothing but this simulated cluster, so it may stand in the manifest.
        """
        return {
            SIMULATOR: f"https://{self.host}:{self.control_port}",
            SIMULATOR_TOKEN: self.token,
            SIMULATOR_PIN: self.pin,
            GIT_ROOT: self.git_root,
        }


def new_rehearsal(run: str, namespace: str) -> HomeRehearsal:
    """Return a new rehearsal for a run, with a token and a certificate of its own."""
    name = f"bringup-rehearsal-{secrets.token_hex(4)}"
    host = f"{name}.{namespace}.svc"
    certificate = self_signed(datetime.datetime.now(datetime.UTC), host)
    # steps may be processes of one machine, as in tests, where fixed ports would collide
    api_port, control_port = random.SystemRandom().sample(_PORTS, 2)
    return HomeRehearsal(
        run=run,
        name=name,
        host=host,
        api_port=api_port,
        control_port=control_port,
        token=secrets.token_urlsafe(32),
        certificate=certificate.public,
        key=certificate.key,
    )


def rehearsed(bundle: Bundle, plan: Plan, rehearsal: HomeRehearsal) -> Bundle:
    """Return the manifests of a plan for the simulated cluster; they differ from the real ones in names and environment alone."""
    template = copy.deepcopy(bundle.template)
    short = rehearsal.name.rpartition("-")[2]
    name = f"{REHEARSAL}-{plan.name[:_LONGEST_CLUSTER].rstrip('-')}-{short}-{names.short(plan.inputs)}"
    template["metadata"] |= {"name": name, "labels": {**template["metadata"]["labels"], LABEL: "true"}}
    marks = template["spec"]["workflowMetadata"]
    marks["labels"] = {**marks["labels"], LABEL: "true"}
    for annotations in (template["metadata"]["annotations"], marks["annotations"]):
        annotations[titles.TITLE] = f"rehearsal of {annotations[titles.TITLE]}"
    for entry in template["spec"]["templates"]:
        if "container" in entry:
            entry["container"]["env"] = [*entry["container"]["env"], *_rows(rehearsal.environment)]
    template["spec"]["volumes"] = [_without_secrets(volume, rehearsal) for volume in template["spec"]["volumes"]]
    workflow = copy.deepcopy(bundle.workflow)
    workflow["spec"]["workflowTemplateRef"]["name"] = name
    return dataclasses.replace(bundle, template=template, workflow=workflow, starts=None)


def _rows(environment: dict[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in environment.items()]


def _without_secrets(volume: Object, rehearsal: HomeRehearsal) -> Object:
    """Return a volume of secret files with stand-ins in their place; any other volume unchanged."""
    if not str(volume["name"]).startswith(f"{FOLDER}-"):
        return volume
    items = [item for source in volume["projected"]["sources"] for item in next(iter(source.values())).get("items", ())]
    kept = [item for item in items if item["path"] in STAND_INS]
    stand_ins = [{"key": item["path"], "path": item["path"]} for item in kept]
    source = {"secret": {"name": rehearsal.name, "items": stand_ins, "optional": True}}
    if not stand_ins:
        return {"name": volume["name"], "emptyDir": {}}
    return {"name": volume["name"], "projected": {"sources": [source], "defaultMode": 0o400}}


def objects(plan: Plan, rehearsal: HomeRehearsal, settings: steps.Settings, options: Sequence[str]) -> tuple[Object, ...]:
    """Return Secret, Service and Pod of a rehearsal, in the order of creation; `options` go to the simulator."""
    meta = {
        "name": rehearsal.name,
        "namespace": settings.namespace,
        "labels": {ERRAND: REHEARSAL, "bringup/run": rehearsal.run, "bringup/cluster": plan.name},
    }
    fleet = gzip.compress(fleet_document(plan), mtime=0)
    texts = {"tls.crt": rehearsal.certificate, "tls.key": rehearsal.key, "token": rehearsal.token, **STAND_INS}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "type": "Opaque", "stringData": texts}
    secret["data"] = {PACKED_FLEET: base64.b64encode(fleet).decode()}
    ports = [{"name": name, "port": port} for name, port in _ports(rehearsal).items()]
    selector = {ERRAND: REHEARSAL, "bringup/run": rehearsal.run}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"selector": selector, "ports": ports}}
    return secret, service, _pod(rehearsal, settings, meta, options)


def _ports(rehearsal: HomeRehearsal) -> dict[str, int]:
    return {"api": rehearsal.api_port, "control": rehearsal.control_port}


def _pod(rehearsal: HomeRehearsal, settings: steps.Settings, meta: Object, options: Sequence[str]) -> Object:
    command = ["python", "-m", "workflows.rehearsal.home_pod", "--files", FILES, "--host", rehearsal.host]
    command += ["--api-port", str(rehearsal.api_port), "--control-port", str(rehearsal.control_port)]
    command += ["--git-root", rehearsal.git_root, *(f"--simulator={option}" for option in options)]
    security = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    container = {
        "name": "simulator",
        "image": settings.builder,
        "imagePullPolicy": "IfNotPresent",
        "command": command,
        "env": _rows({"TMPDIR": f"{paths.ROOT}/out", "HOME": f"{paths.ROOT}/out"}),
        "ports": [{"name": name, "containerPort": port} for name, port in _ports(rehearsal).items()],
        "readinessProbe": {"tcpSocket": {"port": "control"}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "4Gi"}},
        "securityContext": security,
        "volumeMounts": [
            {"name": FOLDER, "mountPath": FILES, "readOnly": True},
            {"name": "store", "mountPath": f"{paths.ROOT}/store"},
            {"name": "out", "mountPath": f"{paths.ROOT}/out"},
        ],
    }
    keys = ("tls.crt", "tls.key", "token", PACKED_FLEET)
    source = {"secret": {"name": rehearsal.name, "items": [{"key": key, "path": key} for key in keys]}}
    spec: Object = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": LONGEST,
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": steps.USER,
            "fsGroup": steps.USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": FOLDER, "projected": {"sources": [source], "defaultMode": 0o440}},
            {"name": "store", "persistentVolumeClaim": {"claimName": settings.store_claim}},
            {"name": "out", "emptyDir": {}},
        ],
    }
    spec |= {"imagePullSecrets": [{"name": settings.pull_secret}]} if settings.pull_secret else {}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@dataclass
class SimulatingPod:
    """A pod of home that simulates a cluster; `is_needed` is true while a run that nobody may follow any more uses it."""

    is_needed: bool = False


@contextmanager
def simulated_in_home(home: Home, manifests: Sequence[Object]) -> Iterator[SimulatingPod]:
    """Create a rehearsal's objects, wait for its pod, and delete them at the end of the context unless the pod is still needed.

    A pod that stays is deleted with the run's Workflow (see `give_to`), or ended after a day. Raises NotSimulated if it does not
    become ready.
    """
    pod = SimulatingPod()
    try:
        for manifest in manifests:
            home.ask(lambda kube: kube.create(manifest))  # noqa: B023  # called within the same turn
        _await_ready(home, manifests[-1]["metadata"]["name"])
        yield pod
    finally:
        for manifest in () if pod.is_needed else reversed(manifests):
            home.ask(lambda kube: kube.delete(kube.path(manifest)))  # noqa: B023  # called within the same turn


def give_to(home: Home, workflow: Workflow, manifests: Sequence[Object]) -> None:
    """Make the Workflow the owner of these objects, so that they are deleted with it."""
    owner = msgspec.to_builtins(workflow.as_owner)
    for manifest in manifests:
        patch = {"metadata": {"ownerReferences": [owner]}}
        home.ask(lambda kube: kube.merge(kube.path(manifest), patch))  # noqa: B023  # called within the same turn


def _await_ready(home: Home, name: str) -> None:
    end = time.monotonic() + timeouts.READER_POD
    while True:
        pod: Any = home.ask(lambda kube: kube.get(home.core("pods", name), RunPod))
        if pod is None:
            raise NotSimulated(f"pod {name} was deleted before the rehearsal began")
        if any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions):
            return
        if pod.status.phase in ("Succeeded", "Failed"):
            log = home.fetch(f"{home.core('pods', name)}/log")[-400:].decode(errors="replace").strip()
            raise NotSimulated(f"pod {name} ended as {pod.status.phase}: {log or pod.status.message}")
        if time.monotonic() > end:
            why = run_pods.waits_for(pod) or pod.status.phase
            raise NotSimulated(f"pod {name} is not ready after {timeouts.READER_POD:.0f} s: {why}")
        time.sleep(timeouts.WATCH_FIRST)
