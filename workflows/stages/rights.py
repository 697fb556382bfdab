"""Rights on the target cluster that several stages share, as rules of a Role. Each task gets only the rights that it needs."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.catalog import PlannedRelease
from workflows.gitops import layout
from workflows.spec.sections.argocd_delivery import ArgoCdDelivery
from workflows.stages.stage import Rule, Site

CHECK_NAMESPACE = "bringup-check"
"""Namespace in which all checks run."""

CLAIM = (
    Rule(groups=("",), resources=("namespaces",), verbs=("get",)),
    Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get", "create", "patch"), namespaces=("kube-system",)),
)
"""Rights to identify the target and to hold its lease; every writing task needs them."""

CORDON = (Rule(groups=("",), resources=("nodes",), verbs=("get", "patch")), *CLAIM)
"""Rights of a judge that cordons nodes."""

CRDS = Rule(groups=("apiextensions.k8s.io",), resources=("customresourcedefinitions",), verbs=("get",))
"""Right to read whether the API server serves the CRDs of a chart."""

GPU_CLAIMS = Rule(
    groups=("resource.k8s.io",),
    resources=("resourceclaimtemplates",),
    verbs=("get", "create", "delete"),
    namespaces=(CHECK_NAMESPACE,),
)
"""Rights to create the ResourceClaimTemplate of a check that claims GPUs (DRA)."""

FABRIC_TESTS = (
    Rule(groups=("batch",), resources=("jobs",), verbs=("deletecollection",), namespaces=(CHECK_NAMESPACE,)),
    Rule(
        groups=("kubeflow.org",), resources=("mpijobs",), verbs=("get", "create", "deletecollection"), namespaces=(CHECK_NAMESPACE,)
    ),
    Rule(groups=("",), resources=("services",), verbs=("get", "create", "patch"), namespaces=(CHECK_NAMESPACE,)),
)
"""Rights to run the tests of a localisation, and to remove all that are left of a killed attempt by their label."""

DIAGNOSE = (
    Rule(groups=("",), resources=("pods", "pods/log", "events", "nodes", "resourcequotas"), verbs=("get", "list")),
    Rule(groups=("batch",), resources=("jobs",), verbs=("get", "list")),
    Rule(groups=("discovery.k8s.io",), resources=("endpointslices",), verbs=("get", "list")),
    Rule(groups=("cert-manager.io",), resources=("certificates",), verbs=("get", "list")),
    Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get",), namespaces=("kube-system",)),
)
"""Rights to collect a diagnosis after a verdict other than pass, a refused write, or an error.

Quotas are read because a quota refuses a write as a missing right does; the lease shows who holds the target.
"""


def execute(namespace: str) -> Rule:
    """Return the right to run commands in the pods of a namespace."""
    # WebSockets begin with a GET; newer API servers ask for create too
    return Rule(groups=("",), resources=("pods/exec",), verbs=("get", "create"), namespaces=(namespace,))


def release_rules(site: Site, chosen: Sequence[PlannedRelease]) -> tuple[Rule, ...]:
    """Return the rights to install releases and to read what their gate compares; for no releases, those for lease and diagnosis.

    An account that may create HelmCharts in kube-system is cluster-admin in effect.
    """
    if not chosen:
        return (*CLAIM, *DIAGNOSE)
    argo = _argo_cd(site, chosen)
    verbs = ("get", "create", "patch")
    owner = (
        Rule(groups=("helm.cattle.io",), resources=("helmcharts",), verbs=verbs, namespaces=("kube-system",))
        if argo is None
        else Rule(groups=("argoproj.io",), resources=("applications",), verbs=verbs, namespaces=(argo.namespace,))
    )
    return (Rule(groups=("",), resources=("namespaces",), verbs=verbs), owner, *CLAIM, *gate_rules(site, chosen))


def gate_rules(site: Site, chosen: Sequence[PlannedRelease]) -> tuple[Rule, ...]:
    """Return the rights to read what the chart gate compares.

    Secrets, which hold Helm values, are readable in the namespaces of the releases only.
    """
    spaces = tuple(dict.fromkeys(release.namespace for release in chosen))
    if not spaces:  # a rule without namespaces would be cluster-wide
        return DIAGNOSE
    argo = _argo_cd(site, chosen)
    owner = (
        (
            Rule(
                groups=("helm.cattle.io",),
                resources=("helmcharts", "helmchartconfigs"),
                verbs=("get",),
                namespaces=("kube-system",),
            ),
            Rule(groups=("batch",), resources=("jobs",), verbs=("get",), namespaces=("kube-system",)),
            Rule(groups=("",), resources=("secrets",), verbs=("list",), namespaces=spaces),
        )
        if argo is None
        else (Rule(groups=("argoproj.io",), resources=("applications",), verbs=("get",), namespaces=(argo.namespace,)),)
    )
    kinds = ("deployments", "statefulsets", "daemonsets")
    return (*owner, Rule(groups=("apps",), resources=kinds, verbs=("list",), namespaces=spaces), *DIAGNOSE)


def _argo_cd(site: Site, chosen: Sequence[PlannedRelease]) -> ArgoCdDelivery | None:
    """Return the spec's Argo CD if it installs one of these releases, or None if helm-controller installs them."""
    return site.spec.delivery.argo_cd if layout.delivered_releases(chosen) else None


def check_rules(*more: Rule) -> tuple[Rule, ...]:
    """Return the rights to run a check: Jobs and pods in the check namespace, and `more` rules for the check's other objects."""
    space = (CHECK_NAMESPACE,)
    return (
        *CLAIM,
        Rule(groups=("",), resources=("namespaces",), verbs=("get", "create", "patch")),
        Rule(groups=("batch",), resources=("jobs",), verbs=("create", "delete"), namespaces=space),
        Rule(groups=("",), resources=("pods",), verbs=("list", "deletecollection"), namespaces=space),
        *DIAGNOSE,
        *more,
    )


def kind_rules(release: PlannedRelease) -> tuple[Rule, ...]:
    """Return the rights on the kinds of the objects that are applied after a release."""
    kinds = sorted({(str(item["apiVersion"]).partition("/")[0], str(item["kind"]).lower()) for item in release.objects})
    verbs = ("get", "list", "create", "patch")
    # these operators name their resources so: `nicclusterpolicy` → `nicclusterpolicies`
    plurals = ((group, f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s") for group, kind in kinds)
    return tuple(Rule(groups=(group,), resources=(resource,), verbs=verbs) for group, resource in plurals)
