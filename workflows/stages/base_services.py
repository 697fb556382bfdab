"""Stage base_services: install the storage class, cert-manager and the monitoring CRDs that charts of later stages need."""

from __future__ import annotations

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.stage_names import StageName
from workflows.stages import argo_cd_delivery, manifest_objects, rights
from workflows.stages.stage import Object, Rule, Site, Stage, Step, task

STAGE: StageName = "base_services"
CHECK = "pvc"
CONTROL, FUNCTIONAL = "base_services/control", "base_services/functional"
CERT_MANAGER = "cert_manager"
MARGIN_SECONDS = 300
"""Seconds added to Helm's own time-outs, to pull images and elect leaders."""

_WRITE = 'printf %s "$POD_UID" > /volume/nonce && sync'
_READ = (
    "read=$(cat /volume/nonce); "
    'printf \'{"node":"%s","wrote":"%s","read":"%s"}\' "$NODE_NAME" "$POD_UID" "$read" > /dev/termination-log'
)


def build(site: Site) -> Stage | None:
    """Return stage base_services, or None if the spec asks for no base service."""
    chosen = manifest_objects.releases(site, STAGE)
    storage = site.spec.base_services.storage
    storage_class = "" if storage.provisioner == "none" else storage.storage_class
    certificates = CERT_MANAGER in {release.id for release in chosen}
    steps, gates = list(argo_cd_delivery.steps(site)), argo_cd_delivery.gates(site)
    if not chosen and not storage_class and not steps:
        return None
    before = (steps[-1].name,) if steps else ()
    if chosen:
        expectations = _expectations(site, chosen, storage_class)
        steps.append(manifest_objects.apply_step(site, STAGE, chosen, CONTROL, expectations, _READS, after=before))
    if chosen or storage_class:
        steps.append(_control(site, chosen, storage_class, ("apply",) if chosen else before))
        gates["control"] = CONTROL
    if storage_class or certificates:
        steps.append(_functional(site, storage_class, certificates))
        gates["functional"] = FUNCTIONAL
    steps.append(manifest_objects.judge(site, STAGE, gates, members="all", cordon=False))
    installed = (*argo_cd_delivery.installed_argo_cd(site), *chosen)
    return Stage(
        id=STAGE,
        title="Base services",
        steps=tuple(steps),
        gates=tuple(gates.values()),
        changes=(*argo_cd_delivery.changes(site), *manifest_objects.installs(chosen)),
        rollback=manifest_objects.rollback(installed) or "nothing is changed",
        releases=tuple(release.id for release in installed),
    )


def _expectations(site: Site, chosen: tuple[PlannedRelease, ...], storage_class: str) -> Object:
    expectations: Object = {
        "releases": [manifest_objects.expected_release(site, release) for release in chosen],
        "crds": [crd for release in chosen for crd in release.crds],
        "storage_class": storage_class,
        "webhook_namespaces": [release.namespace for release in chosen if release.id == CERT_MANAGER],
        **manifest_objects.root_app(site, chosen),
    }
    return {key: value for key, value in expectations.items() if value}


def _control(site: Site, chosen: tuple[PlannedRelease, ...], storage_class: str, after: tuple[str, ...]) -> Step:
    expectations = _expectations(site, chosen, storage_class)
    compared = ("releases", "root_app", "crds", "webhook_namespaces")
    arguments: Object = {
        "gate": CONTROL,
        "stable_seconds": 10,
        "namespaces": list(dict.fromkeys(release.namespace for release in chosen)),
        **{key: expectations[key] for key in compared if key in expectations},
    }
    deadline = sum(release.timeout_seconds for release in chosen) + MARGIN_SECONDS
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=deadline, arguments=arguments, expectations=expectations),
        after=after,
        rules=(*rights.gate_rules(site, chosen), *_READS),
    )


_READS = (
    rights.CRDS,
    Rule(groups=("storage.k8s.io",), resources=("storageclasses",), verbs=("list",)),
    Rule(
        groups=("admissionregistration.k8s.io",),
        resources=("validatingwebhookconfigurations", "mutatingwebhookconfigurations"),
        verbs=("list",),
    ),
    Rule(groups=("discovery.k8s.io",), resources=("endpointslices",), verbs=("list",)),
)


def _functional(site: Site, storage_class: str, certificates: bool) -> Step:
    check_objects = _volume_check(storage_class, site.spec.check_image) if storage_class else []
    check_objects += _certificate_check() if certificates else []
    space = (manifest_objects.CHECK_NAMESPACE,)
    claims = Rule(groups=("",), resources=("persistentvolumeclaims",), verbs=("get", "create", "delete"), namespaces=space)
    kinds = Rule(
        groups=("cert-manager.io",), resources=("issuers", "certificates"), verbs=("get", "create", "delete"), namespaces=space
    )
    return manifest_objects.check_step(
        STAGE,
        FUNCTIONAL,
        CHECK,
        check_objects,
        deadline=600,
        expectations={"storage_class": storage_class, "certificate": certificates},
        waits_for=("control",),
        passed=(),
        rules=(claims, kinds),
        select="all",
    )


def _volume_check(storage_class: str, image: str) -> list[Object]:
    """Return a volume claim and a Job whose first container writes the pod's uid to the volume and whose second reads it back."""
    uid = {"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}
    mount = [{"name": "volume", "mountPath": "/volume"}]
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": manifest_objects.check_metadata(STAGE, CHECK),
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "64Mi"}},
        },
    }
    pod = {
        "volumes": [{"name": "volume", "persistentVolumeClaim": {"claimName": CHECK}}],
        # one container writes and another reads, so that the data really was on the volume
        "initContainers": [manifest_objects.container(image, _WRITE, name="write", env=[uid], volumeMounts=mount)],
        "containers": [manifest_objects.container(image, _READ, env=[uid, manifest_objects.node_name()], volumeMounts=mount)],
    }
    return [claim, manifest_objects.single_job(STAGE, CHECK, pod, seconds=540)]


def _certificate_check() -> list[Object]:
    """Return a self-signed Issuer and a short-lived Certificate; cert-manager creates the Secret `pvc-tls` for it and keeps it."""
    meta = manifest_objects.check_metadata(STAGE, CHECK)
    issuer = {"apiVersion": "cert-manager.io/v1", "kind": "Issuer", "metadata": meta, "spec": {"selfSigned": {}}}
    spec = {
        "secretName": "pvc-tls",
        "dnsNames": ["bringup-check.invalid"],
        "duration": "1h",
        "issuerRef": {"name": CHECK, "kind": "Issuer"},
    }
    return [issuer, {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": dict(meta), "spec": spec}]
