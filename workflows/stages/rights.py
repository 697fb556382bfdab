"""Rights that several stages share, as Role rules: each task may do on the target what it does, and nothing else (design §10)."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.catalog import Release
from workflows.gitops import layout
from workflows.spec.delivery import ArgoCd
from workflows.stages.site import Site
from workflows.stages.stage import Rule

CHECK_NAMESPACE = "bringup-check"
"""Namespace of the checks."""

CLAIM = (
    Rule(groups=("",), resources=("namespaces",), verbs=("get",)),
    Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get", "create", "patch"), namespaces=("kube-system",)),
)
"""Rights to recognize the target and to hold its lease, which every writing task needs."""

GPU_CLAIMS = Rule(
    groups=("resource.k8s.io",),
    resources=("resourceclaimtemplates",),
    verbs=("get", "create", "delete"),
    namespaces=(CHECK_NAMESPACE,),
)
"""Rights to make a check's template of DRA claims."""

DIAGNOSE = (
    Rule(groups=("",), resources=("pods", "pods/log", "events", "nodes", "resourcequotas"), verbs=("get", "list")),
    Rule(groups=("batch",), resources=("jobs",), verbs=("get", "list")),
    Rule(groups=("discovery.k8s.io",), resources=("endpointslices",), verbs=("get", "list")),
    Rule(groups=("cert-manager.io",), resources=("certificates",), verbs=("get", "list")),
    Rule(groups=("coordination.k8s.io",), resources=("leases",), verbs=("get",), namespaces=("kube-system",)),
)
"""Rights to read what a record shows beside a verdict that is no pass, a refused write (a quota refuses as a missing right does) or
an error (who holds the target)."""


def release_rules(site: Site, chosen: Sequence[Release]) -> tuple[Rule, ...]:
    """Rights to apply releases. Whoever may create HelmCharts in kube-system is cluster-admin in effect (design §10)."""
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


def gate_rules(site: Site, chosen: Sequence[Release]) -> tuple[Rule, ...]:
    """Rights to read what the chart gate compares. Release Secrets hold values: only those of the releases' namespaces."""
    spaces = tuple(dict.fromkeys(release.namespace for release in chosen))
    if not spaces:  # no namespaces would mean all of them
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


def _argo_cd(site: Site, chosen: Sequence[Release]) -> ArgoCd | None:
    """The Argo CD that owns these releases; None where helm-controller does."""
    return site.spec.delivery.argo_cd if layout.delivered(chosen) else None


def check_rules(*more: Rule) -> tuple[Rule, ...]:
    """Rights to run a check: Jobs and pods in its namespace, and whatever else its objects need."""
    space = (CHECK_NAMESPACE,)
    return (
        *CLAIM,
        Rule(groups=("",), resources=("namespaces",), verbs=("get", "create", "patch")),
        Rule(groups=("batch",), resources=("jobs",), verbs=("create", "delete"), namespaces=space),
        Rule(groups=("",), resources=("pods",), verbs=("list", "deletecollection"), namespaces=space),
        *DIAGNOSE,
        *more,
    )


def kind_rules(release: Release) -> tuple[Rule, ...]:
    """Rights on the kinds that the release's objects have."""
    named = sorted({(str(item["apiVersion"]).partition("/")[0], str(item["kind"]).lower()) for item in release.objects})
    verbs = ("get", "list", "create", "patch")
    return tuple(Rule(groups=(group,), resources=(_plural(kind),), verbs=verbs) for group, kind in named)


def _plural(kind: str) -> str:
    """A kind's resource name as these operators build it: `nicclusterpolicy` → `nicclusterpolicies`."""
    return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"
