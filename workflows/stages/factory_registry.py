"""Stage factory_registry: the registry of a factory on a volume, proven by what one pod pushes and each node pulls."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from workflows.spec.pipelines.factory_spec import (
    REGISTRY_CERTIFICATE,
    REGISTRY_HTPASSWD,
    REGISTRY_KEY,
    REGISTRY_PASSWORD,
    RegistrySection,
)
from workflows.stages import manifest_objects, rights
from workflows.stages.factory_site import REGISTRY_SPACE, FactorySite, control_step, judge, metadata, namespace
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

ID: Final = "factory_registry"
CONTROL, FUNCTIONAL = f"{ID}/control", f"{ID}/functional"
NAME, CLAIM, PORT, CHECK = "registry", "registry-data", 5000, "registry"
REPOSITORY, TAG = "bringup-check/artefact", "image"
"""Repository of what the check pushes, and the tag of its image, which each check moves."""
DEADLINE, CHECK_SECONDS, PULL_SECONDS = 900, 600, 180
TLS, LOGIN = "tls", "login"
"""First parts of the names of the registry's Secrets, and the names of the folders in which its pod has them."""
_USER = 1000
_SPACE = (REGISTRY_SPACE,)


def build(site: FactorySite) -> Stage:
    """Return stage factory_registry."""
    registry = site.factory.registry
    expectations: Object = {"image": registry.image, "claim": CLAIM, "port": PORT, "node_port": registry.node_port}
    secrets = _secrets(registry)
    apply = Step(
        task=task(
            ID,
            "apply",
            Verb.APPLY,
            deadline=300,
            arguments={"objects": _objects(site), "gate": CONTROL, "gate_expectations": expectations},
        ),
        after=tuple(step.name for step in secrets),
        rules=(*_WRITES, *rights.CLAIM, *_READS),
    )
    control = control_step(ID, DEADLINE, expectations, _READS, namespaces=[REGISTRY_SPACE])
    return Stage(
        id=ID,
        title="Registry",
        steps=(*secrets, apply, control, _functional(site), judge(site, ID, {"control": CONTROL, "functional": FUNCTIONAL})),
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


def _secrets(registry: RegistrySection) -> tuple[Step, ...]:
    """Return the task that writes the Secrets of a registry with TLS; none for one without.

    It has no gate by which an earlier run could stand for it, since a renewed certificate changes nothing that a gate sees.
    """
    if registry.tls is None:
        return ()
    checks = rights.CHECK_NAMESPACE
    names = [(REGISTRY_SPACE, f"{TLS}-certificate", "tls.crt", REGISTRY_CERTIFICATE, "registry.tls.certificate")]
    names.append((REGISTRY_SPACE, f"{TLS}-key", "tls.key", REGISTRY_KEY, "registry.tls.key"))
    if registry.login is not None:
        names.append((REGISTRY_SPACE, LOGIN, "htpasswd", REGISTRY_HTPASSWD, "registry.login.htpasswd"))
        names.append((checks, f"{NAME}-{LOGIN}", "password", REGISTRY_PASSWORD, "registry.login.password"))
    keys = ("namespace", "name", "key", "file", "field")
    arguments: Object = {
        "objects": [namespace(REGISTRY_SPACE), manifest_objects.check_namespace()],
        "secrets": [dict(zip(keys, values, strict=True)) for values in names],
    }
    verbs = ("get", "create", "patch")
    rules = (
        Rule(groups=("",), resources=("namespaces",), verbs=verbs),
        Rule(groups=("",), resources=("secrets",), verbs=verbs, namespaces=(REGISTRY_SPACE, checks)),
        *rights.CLAIM,
        *rights.DIAGNOSE,
    )
    return (Step(task=task(ID, "secrets", Verb.APPLY, deadline=300, arguments=arguments), rules=rules),)


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
            "template": {"metadata": {"labels": labels}, "spec": _pod(registry)},
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


def _pod(registry: RegistrySection) -> Object:
    """Return the pod spec of the registry: without rights, its data on the volume, ready once it answers."""
    environment = {
        "REGISTRY_HTTP_ADDR": f":{PORT}",
        "REGISTRY_STORAGE_FILESYSTEM_ROOTDIRECTORY": "/var/lib/registry",
        "REGISTRY_STORAGE_DELETE_ENABLED": "true",
    }
    volumes: list[Object] = [{"name": "data", "persistentVolumeClaim": {"claimName": CLAIM}}]
    mounts: list[Object] = [{"name": "data", "mountPath": "/var/lib/registry"}]
    probe: Object = {"path": "/v2/", "port": PORT}
    if registry.tls:
        environment |= {"REGISTRY_HTTP_TLS_CERTIFICATE": f"/{TLS}/tls.crt", "REGISTRY_HTTP_TLS_KEY": f"/{TLS}/tls.key"}
        sources = [{"secret": {"name": f"{TLS}-{part}"}} for part in ("certificate", "key")]
        volumes.append({"name": TLS, "projected": {"defaultMode": 0o440, "sources": sources}})
        mounts.append({"name": TLS, "mountPath": f"/{TLS}", "readOnly": True})
        probe["scheme"] = "HTTPS"
    if registry.login:
        environment |= {"REGISTRY_AUTH": "htpasswd", "REGISTRY_AUTH_HTPASSWD_REALM": NAME}
        environment["REGISTRY_AUTH_HTPASSWD_PATH"] = f"/{LOGIN}/htpasswd"
        volumes.append({"name": LOGIN, "secret": {"secretName": LOGIN, "defaultMode": 0o440}})
        mounts.append({"name": LOGIN, "mountPath": f"/{LOGIN}", "readOnly": True})
        # the API's root answers 401 without a login, which the kubelet takes for a failure
        probe["path"] = "/"
    container = {
        "name": NAME,
        "image": registry.image,
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "env": [{"name": key, "value": value} for key, value in environment.items()],
        "readinessProbe": {"httpGet": probe, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
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
        "volumes": volumes,
    }


def _access(registry: RegistrySection) -> list[Object]:
    """Return the variables by which the check's pods speak TLS and log in; none without them."""
    variables: list[Object] = [{"name": "REGISTRY_TLS", "value": "yes"}] if registry.tls else []
    if registry.login:
        reference = {"secretKeyRef": {"name": f"{NAME}-{LOGIN}", "key": "password"}}
        variables.append({"name": "REGISTRY_USER", "value": registry.login.username})
        variables.append({"name": "REGISTRY_PASSWORD", "valueFrom": reference})
    return variables


def check_image(registry: RegistrySection) -> str:
    """Return the name by which nodes pull the check's image, as they pull builder images."""
    host = registry.tls.name if registry.tls else "localhost"
    return f"{host}:{registry.node_port}/{REPOSITORY}:{TAG}"


def _functional(site: FactorySite) -> Step:
    """Return the task whose pods push from one node, pull on every node, and then run what the node itself has pulled."""
    settings = {
        "REGISTRY_HOST": f"{NAME}.{REGISTRY_SPACE}.svc",
        "REGISTRY_PORT": str(PORT),
        "REPOSITORY": REPOSITORY,
        "IMAGE_TAG": TAG,
        "WAIT_SECONDS": str(PULL_SECONDS),
    }
    # the Job's uid is the same in all its pods and new in each check
    nonce = {"name": "NONCE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}}}
    plain = ({"name": key, "value": value} for key, value in settings.items())
    env = [manifest_objects.node_name(), nonce, *plain, *_access(site.factory.registry)]
    script = manifest_objects.packed_script("registry_push_pull.sh")
    image = check_image(site.factory.registry)
    pod = {
        "initContainers": [manifest_objects.container(site.factory.check_image, script, env=env)],
        # the kubelet pulls it once the init container has pushed; nodes may have an older one under this tag
        "containers": [{"name": "pulled", "image": image, "imagePullPolicy": "Always"}],
    }
    return manifest_objects.check_step(
        ID,
        FUNCTIONAL,
        CHECK,
        # a Job whose time is up deletes its pods: those that still try to pull must be there at the gate's deadline
        [manifest_objects.per_node_job(ID, CHECK, pod, seconds=CHECK_SECONDS + 60)],
        deadline=CHECK_SECONDS,
        expectations={"image": image},
        waits_for=("control",),
        passed=(),
        select="all",
        namespaces=[REGISTRY_SPACE],
    )
