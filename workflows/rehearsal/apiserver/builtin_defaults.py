"""Default values of built-in kinds, as clients read them back (`SetDefaults_*` in k8s.io/kubernetes `pkg/apis/*/v1`).

Covers only defaults that a client can see: pods and templates, workloads, services, storage, RBAC, namespaces, nodes.
"""

import base64
import ipaddress
from collections.abc import Callable, Mapping
from typing import Any

from workflows.rehearsal.apiserver import crd_resources
from workflows.rehearsal.apiserver.served_resources import ServedResource
from workflows.rehearsal.apiserver.stored_object import Object

_POD = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "terminationGracePeriodSeconds": 30,
    "schedulerName": "default-scheduler",
    "securityContext": {},
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "resources": {}}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_JOB = {"parallelism": 1, "completionMode": "NonIndexed", "suspend": False, "podReplacementPolicy": "TerminatingOrFailed"}
_CRON_JOB = {"concurrencyPolicy": "Allow", "suspend": False, "successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
_WEBHOOK = {
    "failurePolicy": "Fail",
    "matchPolicy": "Equivalent",
    "timeoutSeconds": 10,
    "namespaceSelector": {},
    "objectSelector": {},
}
_RBAC_GROUP = "rbac.authorization.k8s.io"


def _default(target: Object, values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        target.setdefault(key, dict(value) if isinstance(value, dict) else value)


def _containers(spec: Object) -> tuple[Object, ...]:
    return (*spec.get("containers", ()), *spec.get("initContainers", ()))


def pod_spec(spec: Object) -> None:
    """Fill in the defaults of a pod's spec, in place."""
    _default(spec, _POD)
    if "serviceAccountName" in spec:
        spec.setdefault("serviceAccount", spec["serviceAccountName"])
    for container in _containers(spec):
        _container(container)
    for volume in spec.get("volumes", ()):
        _volume(volume)


def _container(container: Object) -> None:
    _default(container, _CONTAINER)
    image = container.get("image", "")
    tag = image.rpartition("/")[2].partition(":")[2]
    # An image pinned by digest is never latest, whatever its tag.
    latest = "@" not in image and tag in ("", "latest")
    container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
    for port in container.get("ports", ()):
        port.setdefault("protocol", "TCP")
    for probe in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe in container:
            _default(container[probe], _PROBE)
            _default(container[probe].get("httpGet", {}), {"scheme": "HTTP", "path": "/"})
    for variable in container.get("env", ()):
        if "fieldRef" in variable.get("valueFrom", {}):
            variable["valueFrom"]["fieldRef"].setdefault("apiVersion", "v1")


def _volume(volume: Object) -> None:
    for source in ("configMap", "secret", "projected", "downwardAPI"):
        if source in volume:
            volume[source].setdefault("defaultMode", 420)
    if "hostPath" in volume:
        volume["hostPath"].setdefault("type", "")
    if volume.keys() == {"name"}:
        volume["emptyDir"] = {}


def _pod(obj: Object) -> None:
    """Fill in a pod's defaults, in place. Requests and host ports get defaults in pods only, not in pod templates."""
    spec = obj["spec"]
    pod_spec(spec)
    for container in _containers(spec):
        resources = container["resources"]
        for name, amount in resources.get("limits", {}).items():
            resources.setdefault("requests", {}).setdefault(name, amount)
        for port in container.get("ports", ()) if spec.get("hostNetwork") else ():
            port.setdefault("hostPort", port["containerPort"])
    spec.setdefault("enableServiceLinks", True)
    _default(obj["status"], {"phase": "Pending", "qosClass": _qos(spec)})


def _qos(spec: Object) -> str:
    requirements = [container["resources"] for container in _containers(spec)]
    counted = [(_compute(row.get("requests", {})), _compute(row.get("limits", {}))) for row in requirements]
    if not any(requests or limits for requests, limits in counted):
        return "BestEffort"
    full = all(limits.keys() == {"cpu", "memory"} and requests == limits for requests, limits in counted)
    return "Guaranteed" if full else "Burstable"


def _compute(amounts: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: amount for name, amount in amounts.items() if name in ("cpu", "memory")}


def _template(obj: Object) -> None:
    if "spec" in obj["spec"].get("template", {}):
        pod_spec(obj["spec"]["template"]["spec"])


def _rolling_update(strategy: Object, values: Mapping[str, Any]) -> None:
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        _default(strategy.setdefault("rollingUpdate", {}), values)


def _deployment(obj: Object) -> None:
    _template(obj)
    _default(obj["spec"], {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600, "strategy": {}})
    _rolling_update(obj["spec"]["strategy"], {"maxUnavailable": "25%", "maxSurge": "25%"})


def _daemon_set(obj: Object) -> None:
    _template(obj)
    _default(obj["spec"], {"revisionHistoryLimit": 10, "updateStrategy": {}})
    _rolling_update(obj["spec"]["updateStrategy"], {"maxUnavailable": 1, "maxSurge": 0})


def _stateful_set(obj: Object) -> None:
    _template(obj)
    _default(obj["spec"], {"replicas": 1, "revisionHistoryLimit": 10, "podManagementPolicy": "OrderedReady", "updateStrategy": {}})
    _rolling_update(obj["spec"]["updateStrategy"], {"partition": 0})
    obj["spec"].setdefault("persistentVolumeClaimRetentionPolicy", {"whenDeleted": "Retain", "whenScaled": "Retain"})


def _replica_set(obj: Object) -> None:
    _template(obj)
    obj["spec"].setdefault("replicas", 1)


def _job(obj: Object) -> None:
    """Fill in the defaults of a Job, in place, including its selector.

    The selector names the Job's uid, so that pods of an earlier Job with the same name do not match.
    """
    spec, meta = obj["spec"], obj["metadata"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    if "podFailurePolicy" in spec:
        spec.setdefault("podReplacementPolicy", "Failed")
    _default(spec, _JOB)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    _template(obj)
    template_labels = spec["template"].get("metadata", {}).get("labels")
    if template_labels and not meta.get("labels"):
        meta["labels"] = dict(template_labels)
    spec.setdefault("manualSelector", False)
    if spec["manualSelector"] or "selector" in spec:
        return
    labels = spec["template"].setdefault("metadata", {}).setdefault("labels", {})
    job_labels = {"batch.kubernetes.io/controller-uid": meta["uid"], "batch.kubernetes.io/job-name": meta["name"]}
    _default(labels, job_labels | {"controller-uid": meta["uid"], "job-name": meta["name"]})
    spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": meta["uid"]}}


def _service(obj: Object) -> None:
    spec = obj["spec"]
    _default(spec, {"type": "ClusterIP", "sessionAffinity": "None"})
    if spec["type"] != "ExternalName":
        if not spec.get("clusterIP"):
            spec["clusterIP"] = _address(obj["metadata"]["uid"])
        _default(spec, {"internalTrafficPolicy": "Cluster", "ipFamilyPolicy": "SingleStack"})
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]


def _address(uid: str) -> str:
    """Return a cluster IP in 10.96.0.0/16 for a Service, derived from its `uid`.

    Two Services may get the same address, which is harmless because nothing routes it.
    """
    return str(ipaddress.IPv4Address("10.96.0.0") + (int(uid[:8], 16) & 0xFFFF))


def _namespace(obj: Object) -> None:
    obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = obj["metadata"]["name"]
    obj["status"].setdefault("phase", "Active")


def _node(obj: Object) -> None:
    if "capacity" in obj["status"]:
        obj["status"].setdefault("allocatable", dict(obj["status"]["capacity"]))


def _secret(obj: Object) -> None:
    obj.setdefault("type", "Opaque")
    for key, text in obj.pop("stringData", {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(text.encode()).decode()


def _claim(obj: Object) -> None:
    obj["spec"].setdefault("volumeMode", "Filesystem")
    obj["status"].setdefault("phase", "Pending")


def _volume_object(obj: Object) -> None:
    _default(obj["spec"], {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"})
    obj["status"].setdefault("phase", "Pending")


def _binding(obj: Object) -> None:
    people = (subject for subject in obj.get("subjects", ()) if subject.get("kind") in ("User", "Group"))
    for reference in (obj["roleRef"], *people):
        if not reference.get("apiGroup"):
            reference["apiGroup"] = _RBAC_GROUP


def _webhooks(obj: Object) -> None:
    for hook in obj.get("webhooks", ()):
        _default(hook, _WEBHOOK)


def _crd(obj: Object) -> None:
    spec = obj["spec"]
    names = spec["names"]
    _default(names, {"listKind": f"{names['kind']}List", "singular": names["kind"].lower()})
    spec.setdefault("conversion", {"strategy": "None"})
    crd_resources.set_established_status(obj)


_BY_RESOURCE: Mapping[tuple[str, str], Callable[[Object], None]] = {
    ("", "pods"): _pod,
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "services"): _service,
    ("", "secrets"): _secret,
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume_object,
    ("", "replicationcontrollers"): _replica_set,
    ("apps", "deployments"): _deployment,
    ("apps", "daemonsets"): _daemon_set,
    ("apps", "statefulsets"): _stateful_set,
    ("apps", "replicasets"): _replica_set,
    ("batch", "jobs"): _job,
    ("batch", "cronjobs"): lambda obj: _default(obj["spec"], _CRON_JOB),
    (_RBAC_GROUP, "rolebindings"): _binding,
    (_RBAC_GROUP, "clusterrolebindings"): _binding,
    ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): _webhooks,
    ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): _webhooks,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _crd,
    ("storage.k8s.io", "storageclasses"): lambda obj: _default(obj, {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}),
    ("scheduling.k8s.io", "priorityclasses"): lambda obj: _default(obj, {"preemptionPolicy": "PreemptLowerPriority"}),
}


def fill(resource: ServedResource, obj: Object) -> None:
    """Fill in the defaults of an object of a built-in kind, in place."""
    filler = _BY_RESOURCE.get(resource.key)
    if filler is not None:
        filler(obj)
