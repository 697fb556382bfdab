"""Stage base_services: simulated cert-manager and local-path-provisioner, the Prometheus Operator's CRDs, the storage check."""

from __future__ import annotations

import functools

from workflows.rehearsal.simulator.api.api_kinds import (
    CLAIMS,
    PODS,
    SECRETS,
    SERVICES,
    STORAGE_CLASSES,
    VOLUMES,
    Obj,
    ObjectKind,
    Ref,
    annotations_of,
    custom,
    has_condition,
    ref,
)
from workflows.rehearsal.simulator.charts.chart_installers import ChartError, ChartRelease, chart
from workflows.rehearsal.simulator.charts.operators import has_ready_pod
from workflows.rehearsal.simulator.controllers import simulated_pods
from workflows.rehearsal.simulator.controllers.simulated_pods import Behaviour, Exit, blocked_by, check
from workflows.rehearsal.simulator.world import Changes, World

ADMISSION = "admissionregistration.k8s.io"
VALIDATING = ObjectKind(ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False)
MUTATING = ObjectKind(ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False)
SLICES = ObjectKind("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
ISSUERS = custom("cert-manager.io", "Issuer")
CERTIFICATES = custom("cert-manager.io", "Certificate")
DEFAULT_CLASS = "storageclass.kubernetes.io/is-default-class"
PROVISIONER = "cluster.local/local-path-provisioner"
CERT_MANAGER, WEBHOOK = "cert-manager", "cert-manager-webhook"
FOREIGN_CLASS = "vendor-default"
CA_BUNDLE = "c2ltdWxhdGVkIENB"

_INDEX = 'Get "https://charts.jetstack.io/index.yaml"'
_LOOKUP = "dial tcp: lookup charts.jetstack.io"
_OTHER_NAMES = "x509: certificate is valid for *.hpc.example.org, hpc.example.org, not charts.jetstack.io"
_NOT_FETCHED = {
    "chart_repo_unreachable": f"{_LOOKUP}: no such host",
    "chart_name_unanswered": f"{_INDEX}: {_LOOKUP} on 10.43.0.10:53: read udp 10.42.0.7:51044->10.43.0.10:53: i/o timeout",
    "chart_from_another_server": f"{_INDEX}: tls: failed to verify certificate: {_OTHER_NAMES}",
}
"""Fault → Helm's words why it does not fetch cert-manager's chart."""


# ---- charts ------------------------------------------------------------------------------------------------------------------


@chart("prometheus-operator-crds")
def prometheus_crds(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart prometheus-operator-crds: the CustomResourceDefinitions alone."""
    release.crds("monitoring.coreos.com")


@chart("cert-manager")
def cert_manager(world: World, release: ChartRelease) -> None:
    """Install the simulated chart cert-manager: three Deployments, a Service, and webhooks whose CA bundle is still empty.

    The webhooks have no rules, because a real API server would call them and nothing would answer. Raises ChartError under faults
    by which Helm cannot fetch the chart, or the API server cannot reach the webhook.
    """
    for fault, why in _NOT_FETCHED.items():
        if world.fault(fault):
            place = 'looks like "https://charts.jetstack.io" is not a valid chart repository or cannot be reached'
            raise ChartError(f"Error: INSTALLATION FAILED: {place}: {why}")
    if release.value("crds.enabled", False):
        release.crds("cert-manager.io")
    for name in (CERT_MANAGER, "cert-manager-cainjector", WEBHOOK):
        release.deployment(name, {"app.kubernetes.io/name": name})
    ports = [{"name": "https", "port": 443, "targetPort": 10250}]
    release.put(SERVICES, {"metadata": {"name": WEBHOOK}, "spec": {"selector": {"app": WEBHOOK}, "ports": ports}})
    for kind in (VALIDATING, MUTATING):
        config = {"service": {"name": WEBHOOK, "namespace": release.namespace, "path": "/validate"}}
        hook = {"name": "webhook.cert-manager.io", "admissionReviewVersions": ["v1"], "sideEffects": "None"}
        if world.read(kind, WEBHOOK) is None:
            hooks = [hook | {"failurePolicy": "Ignore", "clientConfig": config}]
            release.put(kind, {"metadata": {"name": WEBHOOK}, "webhooks": hooks})
    if world.fault("webhook_not_reached"):
        call = f'Post "https://{WEBHOOK}.{release.namespace}.svc:443/validate?timeout=30s": context deadline exceeded'
        failed = f'failed calling webhook "webhook.cert-manager.io": failed to call webhook: {call}'
        raise ChartError(f"Error: INSTALLATION FAILED: Internal error occurred: {failed}")


@chart("local-path-provisioner")
def local_path(_world: World, release: ChartRelease) -> None:
    """Install the simulated chart local-path-provisioner: its Deployment and, if the values ask for it, its StorageClass."""
    release.deployment("local-path-provisioner")
    if release.value("storageClass.create", True):
        default = str(bool(release.value("storageClass.defaultClass", False))).lower()
        body = {
            "metadata": {"name": release.value("storageClass.name", "local-path"), "annotations": {DEFAULT_CLASS: default}},
            "provisioner": PROVISIONER,
            "reclaimPolicy": release.value("storageClass.reclaimPolicy", "Delete"),
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        release.put(STORAGE_CLASSES, body)


blocked_by("cert_manager_webhook_crash", "app", WEBHOOK, f"back-off 5m0s restarting failed container={WEBHOOK}")


# ---- roles -------------------------------------------------------------------------------------------------------------------


class CertManager:
    """Simulated cert-manager: cainjector, the issuing of certificates, and the endpoints of its webhook's Service."""

    name = "cert_manager"
    kinds = (VALIDATING, MUTATING, SLICES, ISSUERS, CERTIFICATES, SECRETS, PODS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Write the webhook's endpoints, fill in CA bundles, and issue the certificates that wait."""
        if world.find(VALIDATING, WEBHOOK) is None:
            return
        if changed.concern(SLICES) or any(at.namespace == CERT_MANAGER for at in changed.refs(PODS)):
            _endpoints(world)
        if has_ready_pod(world, CERT_MANAGER, "cert-manager-cainjector") and not world.fault("webhook_ca_missing"):
            world.later("base_services/cainjector", 2, 10, functools.partial(_inject, world))
        if not has_ready_pod(world, CERT_MANAGER, CERT_MANAGER):
            return
        for issuer in world.objects(ISSUERS):
            world.set_condition(ISSUERS, issuer, "Ready", "True", "IsReady")
        for certificate in world.objects(CERTIFICATES):
            _certificate(world, certificate)


def _endpoints(world: World) -> None:
    """Write the EndpointSlice of the webhook's Service from its pods.

    Its `managed-by` label names no real endpoint controller. A real one would delete the slice again and again, as simulated pods
    have no address.
    """
    mine = sorted(world.select(PODS, CERT_MANAGER, {"app": WEBHOOK}), key=lambda pod: str(pod["metadata"]["name"]))
    endpoints = [
        {
            "addresses": [f"10.42.250.{number + 1}"],
            "conditions": {"ready": simulated_pods.ready(pod)},
            "targetRef": {"kind": "Pod", "name": pod["metadata"]["name"]},
        }
        for number, pod in enumerate(mine)
    ]
    labels = {"kubernetes.io/service-name": WEBHOOK, "endpointslice.kubernetes.io/managed-by": "simulated"}
    meta = {"name": f"{WEBHOOK}-simulated", "namespace": CERT_MANAGER, "labels": labels}
    ports = [{"name": "https", "port": 10250, "protocol": "TCP"}]
    world.ensure(SLICES, {"metadata": meta, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})


def _inject(world: World) -> None:
    for kind in (VALIDATING, MUTATING):
        configuration = world.find(kind, WEBHOOK)
        if configuration is None or world.fault("webhook_ca_missing"):
            continue
        hooks = [hook | {"clientConfig": hook["clientConfig"] | {"caBundle": CA_BUNDLE}} for hook in configuration["webhooks"]]
        world.patch(kind, configuration, {"webhooks": hooks})


def _certificate(world: World, certificate: Obj) -> None:
    at = ref(certificate)
    if has_condition(certificate, "Ready"):
        return
    message = "Issuing certificate as Secret does not exist"
    world.set_condition(CERTIFICATES, certificate, "Ready", "False", "DoesNotExist", message)
    if not world.fault("certificate_not_issued"):
        uid = certificate["metadata"]["uid"]
        world.later(f"base_services/certificate/{at.namespace}/{at.name}/{uid}", 2, 8, functools.partial(_issue, world, at))


def _issue(world: World, at: Ref) -> None:
    certificate = world.find(CERTIFICATES, at)
    if certificate is None or world.fault("certificate_not_issued"):
        return
    data = {"tls.crt": "c2ltdWxhdGVk", "tls.key": "c2ltdWxhdGVk", "ca.crt": "c2ltdWxhdGVk"}
    meta = {"name": certificate["spec"]["secretName"], "namespace": at.namespace}
    world.create(SECRETS, {"metadata": meta, "type": "kubernetes.io/tls", "data": data})
    message = "Certificate is up to date and has not expired"
    world.set_condition(CERTIFICATES, certificate, "Ready", "True", "Ready", message)


SELECTED = "volume.kubernetes.io/selected-node"


class LocalPath:
    """Simulated local-path-provisioner and volume binder: a PersistentVolumeClaim is bound once a pod that uses it has a node."""

    name = "local_path"
    kinds = (CLAIMS, VOLUMES, STORAGE_CLASSES, PODS)

    def reconcile(self, world: World, changed: Changes) -> None:
        """Bind the claims that wait; create or delete the second default class of the fault `two_default_storage_classes`."""
        if changed.everything:
            _foreign_class(world)
        if not has_ready_pod(world, "local-path-storage", "local-path-provisioner") or not world.objects(CLAIMS):
            return
        users = _users(world)
        for claim in world.objects(CLAIMS):
            at = ref(claim)
            if claim.get("status", {}).get("phase") == "Bound" or at not in users or not _mine(world, claim):
                continue
            key = f"base_services/claim/{at.namespace}/{at.name}/{claim['metadata']['uid']}"
            world.later(key, 1, 4, functools.partial(_bind, world, at, users[at]))


def _foreign_class(world: World) -> None:
    if world.fault("two_default_storage_classes"):
        meta = {"name": FOREIGN_CLASS, "annotations": {DEFAULT_CLASS: "true"}}
        world.ensure(STORAGE_CLASSES, {"metadata": meta, "provisioner": "csi.vendor.example"})
    elif world.find(STORAGE_CLASSES, FOREIGN_CLASS) is not None:
        world.delete(STORAGE_CLASSES, Ref("", FOREIGN_CLASS))


def _users(world: World) -> dict[Ref, str]:
    """Return, by PersistentVolumeClaim, the node on which its volume is needed; claims without such a node are left out.

    A real scheduler writes the node on the claim before it places the pod. Otherwise it is the node of the first placed pod.
    """
    notes = {ref(claim): annotations_of(claim).get(SELECTED, "") for claim in world.objects(CLAIMS)}
    nodes = {at: node for at, node in notes.items() if node}
    for pod in world.objects(PODS):
        for volume in pod["spec"].get("volumes") or ():
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            if name and simulated_pods.node(pod):
                nodes.setdefault(Ref(pod["metadata"]["namespace"], name), simulated_pods.node(pod))
    return nodes


def _mine(world: World, claim: Obj) -> bool:
    storage = world.find(STORAGE_CLASSES, claim["spec"].get("storageClassName", ""))
    return storage is not None and storage["provisioner"] == PROVISIONER


def _bind(world: World, at: Ref, node: str) -> None:
    claim = world.find(CLAIMS, at)
    if claim is None:
        return
    name, spec = f"pvc-{claim['metadata']['uid']}", claim["spec"]
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/provisioned-by": PROVISIONER}},
        "spec": {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": spec["storageClassName"],
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"kind": "PersistentVolumeClaim", "namespace": at.namespace, "name": at.name},
            "hostPath": {"path": f"/var/lib/bringup/volumes/{name}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    world.create(VOLUMES, volume)
    world.patch(CLAIMS, at, {"spec": {"volumeName": name}})
    status = {"phase": "Bound", "accessModes": spec["accessModes"], "capacity": spec["resources"]["requests"]}
    world.patch(CLAIMS, at, {"status": status}, status=True)


@check("pvc")
def pvc(world: World, pod: Obj, node: str) -> Behaviour:
    """Play the check `pvc`: report after 8 s, when the volume is bound, what one container wrote and the next one read."""
    uid = pod["metadata"].get("uid", "")
    read = "" if world.fault("storage_loses_writes") else uid
    return Exit(message={"node": node, "wrote": uid, "read": read}, seconds=8)


ROLES = (CertManager, LocalPath)
