"""Stage factory_registry: the registry of a factory on a volume, proven by an artefact that one pod pushes and each node pulls."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from workflows.stages import manifest_objects, rights
from workflows.stages.factory_site import REGISTRY_SPACE, FactorySite, control_step, judge, metadata, namespace
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

ID: Final = "factory_registry"
CONTROL, FUNCTIONAL = f"{ID}/control", f"{ID}/functional"
NAME, CLAIM, PORT, CHECK = "registry", "registry-data", 5000, "registry"
DEADLINE, CHECK_SECONDS, PULL_SECONDS = 900, 600, 180
_USER = 1000
_SPACE = (REGISTRY_SPACE,)


def build(site: FactorySite) -> Stage:
    """Return stage factory_registry."""
    registry = site.factory.registry
    expectations: Object = {"image": registry.image, "claim": CLAIM, "port": PORT, "node_port": registry.node_port}
    apply = Step(
        task=task(
            ID,
            "apply",
            Verb.APPLY,
            deadline=300,
            arguments={"objects": _objects(site), "gate": CONTROL, "gate_expectations": expectations},
        ),
        rules=(*_WRITES, *rights.CLAIM, *_READS),
    )
    control = control_step(ID, DEADLINE, expectations, _READS, namespaces=[REGISTRY_SPACE])
    return Stage(
        id=ID,
        title="Registry",
        steps=(apply, control, _functional(site), judge(site, ID, {"control": CONTROL, "functional": FUNCTIONAL})),
        gates=(CONTROL, FUNCTIONAL),
        changes=(Change(what=f"install the registry {registry.image} with a volume of {registry.size}", where=REGISTRY_SPACE),),
        rollback=f"kubectl delete namespace {REGISTRY_SPACE}; images in it are lost, and builds push them again",
    )


_READS = (
    Rule(groups=("apps",), resources=("deployments",), verbs=("list",), namespaces=_SPACE),
    Rule(groups=("",), resources=("persistentvolumeclaims", "services"), verbs=("get", "list"), namespaces=_SPACE),
    *rights.DIAGNOSE,
)
_WRITES = (
    Rule(groups=("",), resources=("namespaces",), verbs=("get", "create", "patch")),
    Rule(groups=("",), resources=("persistentvolumeclaims", "services"), verbs=("get", "create", "patch"), namespaces=_SPACE),
    Rule(groups=("apps",), resources=("deployments",), verbs=("get", "create", "patch"), namespaces=_SPACE),
)


def _objects(site: FactorySite) -> list[Object]:
    """Return namespace, volume claim, Deployment and Service of the registry."""
    registry, labels = site.factory.registry, {"app": NAME}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(CLAIM, REGISTRY_SPACE),
        "spec": {
            "storageClassName": site.factory.storage.storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": registry.size}},
        },
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, REGISTRY_SPACE),
        "spec": {
            "replicas": 1,
            # a second pod beside the first would write to the same volume
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": _pod(registry.image)},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(NAME, REGISTRY_SPACE),
        "spec": {
            "type": "NodePort",
            "selector": labels,
            "ports": [{"name": "http", "port": PORT, "targetPort": PORT, "nodePort": registry.node_port, "protocol": "TCP"}],
        },
    }
    return [namespace(REGISTRY_SPACE), claim, deployment, service]


def _pod(image: str) -> Object:
    """Return the pod spec of the registry: without rights, its data on the volume, ready once it answers the API's root."""
    environment = {
        "REGISTRY_HTTP_ADDR": f":{PORT}",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": "/var/lib/registry",
        "REGISTRY_STORAGE_DELETE_ENABLED": "true",
    }
    container = {
        "name": NAME,
        "image": image,
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "readinessProbe": {"httpGet": {"path": "/v2/", "port": PORT}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "data", "mountPath": "/var/lib/registry"}],
    }
    return {
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _USER,
            "fsGroup": _USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}],
    }


def _functional(site: FactorySite) -> Step:
    """Return the task whose pods push an artefact from one node and pull it on every node."""
    settings = {
        "REGISTRY_HOST": f"{NAME}.{REGISTRY_SPACE}.svc",
        "REGISTRY_PORT": str(PORT),
        "REPOSITORY": "bringup-check/artefact",
        "WAIT_SECONDS": str(PULL_SECONDS),
    }
    # the Job's uid is the same in all its pods and new in each check
    nonce = {"name": "NONCE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}}}
    env = [manifest_objects.node_name(), nonce, *({"name": key, "value": value} for key, value in settings.items())]
    script = manifest_objects.script("registry_push_pull.sh")
    pod = {"containers": [manifest_objects.container(site.factory.check_image, script, env=env)]}
    return manifest_objects.check_step(
        ID,
        FUNCTIONAL,
        CHECK,
        [manifest_objects.per_node_job(ID, CHECK, pod, seconds=CHECK_SECONDS)],
        deadline=CHECK_SECONDS + 60,
        expectations={},
        waits_for=("control",),
        passed=(),
        select="all",
        namespaces=[REGISTRY_SPACE],
    )
