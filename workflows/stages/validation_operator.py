"""Stage validation: the MPI operator, which a Job in the target cluster applies from its upstream manifest."""

from __future__ import annotations

import re

from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.stages import manifest_objects, rights
from workflows.stages.stage import Object, Rule, Site, Step, task
from workflows.stages.validation_tasks import STAGE

RELEASE = "mpi_operator"
NAMESPACE = "mpi-operator"
GATE = "validation/control"
SECONDS = 900

KUBECTL_IMAGE = "registry.k8s.io/kubectl"
"""Image of the Job that applies the operator's manifest, used at the cluster's own Kubernetes version; the Job needs no shell."""


def install_name(release: PlannedRelease) -> str:
    """Return the name of the install Job, which contains the version because a Job cannot be changed."""
    return f"install-{re.sub('[^a-z0-9]+', '-', release.version.lower())}"


def apply(site: Site, release: PlannedRelease) -> Step:
    """Return the task that installs the MPI operator by a Job in the target cluster.

    Upstream has no chart, and the manifest with its CRD is too large for a task.
    """
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "bringup-install", "namespace": NAMESPACE}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "bringup-install-mpi-operator"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "bringup-install", "namespace": NAMESPACE}],
    }
    arguments = {
        "objects": [manifest_objects.namespace(NAMESPACE), account, binding, _install_job(site, release)],
        **_observed(release),
        "gate_expectations": _control_expectations(release),
    }
    verbs = ("get", "create", "patch")
    return Step(
        task=task(STAGE, "apply", Verb.APPLY, deadline=300, arguments=arguments),
        rules=(
            *rights.CLAIM,
            Rule(groups=("",), resources=("namespaces",), verbs=verbs),
            Rule(groups=("",), resources=("serviceaccounts",), verbs=verbs, namespaces=(NAMESPACE,)),
            Rule(groups=("batch",), resources=("jobs",), verbs=verbs, namespaces=(NAMESPACE,)),
            Rule(groups=("rbac.authorization.k8s.io",), resources=("clusterrolebindings",), verbs=verbs),
            # Kubernetes lets nobody bind a role beyond his own rights without the verb `bind`
            Rule(groups=("rbac.authorization.k8s.io",), resources=("clusterroles",), verbs=("bind",)),
            *_READS,
        ),
    )


def _install_job(site: Site, release: PlannedRelease) -> Object:
    version = site.spec.rke2.version.partition("+")[0]
    kubectl = {
        "name": "kubectl",
        "image": f"{KUBECTL_IMAGE}:{version}",
        "args": ["apply", "--server-side", "--force-conflicts", "-f", release.manifest],
    }
    labels = {"bringup/install": release.release_name}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": install_name(release), "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "backoffLimit": 3,
            "template": {
                "metadata": {"labels": labels},
                "spec": {"restartPolicy": "Never", "serviceAccountName": "bringup-install", "containers": [kubectl]},
            },
        },
    }


_READS = (
    rights.CRDS,
    Rule(groups=("apps",), resources=("deployments",), verbs=("list",), namespaces=(NAMESPACE,)),
    Rule(groups=("batch",), resources=("jobs",), verbs=("get",), namespaces=(NAMESPACE,)),
    *rights.DIAGNOSE,
)


def _observed(release: PlannedRelease) -> Object:
    return {"gate": GATE, "install": install_name(release), "crds": list(release.crds)}


def _control_expectations(release: PlannedRelease) -> Object:
    return {"crds": list(release.crds), "tag": release.version.removeprefix("v")}


def control(release: PlannedRelease) -> Step:
    """Return the task that waits until the MPI operator runs and the API server serves its CRD."""
    arguments = {**_observed(release), "stable_seconds": 10, "namespaces": [NAMESPACE]}
    return Step(
        task=task(STAGE, "control", Verb.WAIT, deadline=SECONDS, arguments=arguments, expectations=_control_expectations(release)),
        after=("apply",),
        rules=_READS,
    )
