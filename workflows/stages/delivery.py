"""Delivery by Argo CD, the first tasks of stage base_services: Argo CD itself, its settings, and the tree that it delivers from.

What these leave is read back before any release is applied: `argo_cd` looks at Argo CD, `delivery` at what it was told.
"""

from __future__ import annotations

import dataclasses
import hashlib

from steps.contract.delivery import TREE_FILE, server, ssh_host, text_digest
from steps.contract.task import Verb
from workflows.catalog import Release
from workflows.catalog.merging import merge
from workflows.gitops import layout, projects, settings
from workflows.spec.delivery import ArgoCd
from workflows.stages import access, objects, rights
from workflows.stages.site import Site
from workflows.stages.stage import Change, Object, Rule, Step, task

STAGE = "base_services"
ARGO_CD, DELIVERY = "base_services/argo_cd", "base_services/delivery"
SECONDS = 300
PUBLISH_SECONDS = 600
"""A push may have to be built again on top of what others pushed meanwhile."""
RESOURCE_HEALTH = "controller.resource.health.persist"
"""Setting of Argo CD that is off since 3.0 (gpu_stack §6.2)."""
CRDS = ("applications.argoproj.io", "applicationsets.argoproj.io", "appprojects.argoproj.io")
WORKLOADS = 4
"""Application controller, repo server, ApplicationSet controller and Redis; the chart's server comes on top."""


def steps(site: Site) -> tuple[Step, ...]:
    """The tasks, each after the one before; none where helm-controller installs the charts."""
    argo = site.spec.delivery.argo_cd
    if argo is None:
        return ()
    made = [*(_install(site, release) for release in installed(site)), _argo_cd(site, argo)]
    made += [_settings(site, argo), _publish(site, argo), _delivery(site, argo)]
    ordered = [made[0]]
    for step in made[1:]:
        ordered.append(dataclasses.replace(step, after=(ordered[-1].name,)))
    return tuple(ordered)


def gates(site: Site) -> dict[str, str]:
    """Gate ids by the task that has them."""
    return {"argo_cd": ARGO_CD, "delivery": DELIVERY} if site.spec.delivery.argo_cd else {}


def installed(site: Site) -> tuple[Release, ...]:
    """Argo CD's own chart with our keys in its values, where this run installs it: there the ConfigMap has an owner, and any other
    way of setting them would be undone by it. It keeps the health of resources, by which gates see what a quorum spares."""
    release = site.releases.get(layout.INSTALLER)
    if release is None:
        return ()
    keys = settings.settings(site.releases.values())
    configs = {"cm": keys, "params": {RESOURCE_HEALTH: "true"}}
    return (dataclasses.replace(release, values=merge(release.values, {"configs": configs})),)


def changes(site: Site) -> tuple[Change, ...]:
    """What the tasks change, for the plan."""
    argo = site.spec.delivery.argo_cd
    if argo is None:
        return ()
    found = [Change(what=f"install {one.release_name} {one.version}", where=one.namespace) for one in installed(site)]
    found.append(Change(what=f"apply AppProject {argo.project} and {projects.roots_project(argo)}", where=argo.namespace))
    if not argo.install:
        found.append(Change(what="set keys of argocd-cm", where=argo.namespace))
    if not argo.is_commit:
        found.append(Change(what=f"commit to {argo.branch} and tag {argo.revision}", where=argo.repo))
    return tuple(found)


# ---- Argo CD itself ------------------------------------------------------------------------------------------------------------

_CRD_READS = Rule(groups=("apiextensions.k8s.io",), resources=("customresourcedefinitions",), verbs=("get",))


def _argo_cd_expectations(site: Site, argo: ArgoCd) -> Object:
    found: Object = {"namespace": argo.namespace, "version": argo.version, "crds": list(CRDS)}
    releases = [objects.expected(site, release, workloads=WORKLOADS) for release in installed(site)]
    return found | ({"releases": releases} if releases else {})


def _argo_cd_rules(site: Site, argo: ArgoCd) -> tuple[Rule, ...]:
    workloads = Rule(
        groups=("apps",), resources=("deployments", "statefulsets", "daemonsets"), verbs=("list",), namespaces=(argo.namespace,)
    )
    return (*rights.gate_rules(site, installed(site)), workloads, _CRD_READS)


def _install(site: Site, release: Release) -> Step:
    argo = layout.delivery(site.spec)
    arguments = {
        "objects": objects.release_objects(site, (release,)),
        "gate": ARGO_CD,
        "gate_expectations": _argo_cd_expectations(site, argo),
    }
    return Step(
        task=task(STAGE, "argo_cd_install", Verb.APPLY, deadline=SECONDS, arguments=arguments),
        rules=(*rights.release_rules(site, (release,)), *_argo_cd_rules(site, argo)),
    )


def _argo_cd(site: Site, argo: ArgoCd) -> Step:
    expectations = _argo_cd_expectations(site, argo)
    asked: Object = {key: expectations[key] for key in ("namespace", "crds", "releases") if key in expectations}
    arguments = {"gate": ARGO_CD, "stable_seconds": 10, "namespaces": [argo.namespace], **asked}
    seconds = SECONDS + sum(release.timeout_seconds for release in installed(site))
    return Step(
        task=task(STAGE, "argo_cd", Verb.WAIT, deadline=seconds, arguments=arguments, expectations=expectations),
        rules=_argo_cd_rules(site, argo),
    )


# ---- what it is told -----------------------------------------------------------------------------------------------------------


def _made_projects(site: Site) -> list[Object]:
    return projects.projects(site.spec, site.releases.values())


def _delivery_expectations(site: Site, argo: ArgoCd) -> Object:
    return {
        "namespace": argo.namespace,
        "repo": argo.repo,
        "keys": _keys(site),
        "projects": [{"name": one["metadata"]["name"], "spec": one["spec"]} for one in _made_projects(site)],
        **({"credentials": True} if argo.credentials else {}),
        **({"host_keys": True} if argo.known_hosts else {}),
        **({"certificates": True} if argo.ca else {}),
    }


def _keys(site: Site) -> dict[str, str]:
    """Digests of our keys of argocd-cm: their texts are too large for a task."""
    return {key: text_digest(text) for key, text in settings.settings(site.releases.values()).items()}


def _trusted(argo: ArgoCd) -> Object:
    """Whom Argo CD is to trust, by the names of secret files."""
    found: Object = {}
    if argo.known_hosts:
        found["known_hosts"] = {"namespace": argo.namespace, "host": ssh_host(argo.repo), "file": access.GIT_KNOWN_HOSTS}
    if argo.ca:
        found["certificates"] = {"namespace": argo.namespace, "host": server(argo.repo), "file": access.GIT_CA}
    return found


def _delivery_rules(argo: ArgoCd) -> tuple[Rule, ...]:
    space = (argo.namespace,)
    return (
        Rule(groups=("argoproj.io",), resources=("appprojects",), verbs=("get",), namespaces=space),
        Rule(groups=("",), resources=("configmaps",), verbs=("get",), namespaces=space),
        *((Rule(groups=("",), resources=("secrets",), verbs=("list",), namespaces=space),) if argo.credentials else ()),
        *rights.DIAGNOSE,
    )


def _settings(site: Site, argo: ArgoCd) -> Step:
    """AppProjects, our keys of argocd-cm unless the chart carries them, whom Argo CD trusts, and the Secret that lets it into the
    repository.

    It names no gate for reuse: `delivery` reads all of it back in any case.
    """
    space = (argo.namespace,)
    arguments: Object = {"objects": _made_projects(site)}
    rules = [Rule(groups=("argoproj.io",), resources=("appprojects",), verbs=("get", "create", "patch"), namespaces=space)]
    if not argo.install:
        keys, place = _keys(site), layout.Layout.of(site.spec)
        arguments["config_map"] = {"namespace": argo.namespace, "path": place.config_map, "keys": keys}
    arguments |= _trusted(argo)
    if not argo.install or _trusted(argo):
        rules.append(Rule(groups=("",), resources=("configmaps",), verbs=("get", "patch"), namespaces=space))
    if argo.credentials:
        arguments["repository"] = {
            "namespace": argo.namespace,
            "name": f"bringup-repository-{hashlib.sha256(argo.repo.encode()).hexdigest()[:8]}",
            "url": argo.repo,
            "credentials": access.GIT_CREDENTIALS,
        }
        rules.append(Rule(groups=("",), resources=("secrets",), verbs=("get", "create", "patch"), namespaces=space))
    return Step(
        task=task(STAGE, "delivery_settings", Verb.APPLY, deadline=SECONDS, arguments=arguments),
        rules=(*rules, *rights.CLAIM, *rights.DIAGNOSE),
    )


def _publish(site: Site, argo: ArgoCd) -> Step:
    """The tree goes to Git; this task touches nothing in the cluster. The tree's digest stands in the arguments, hence in every
    digest of this task: another tree is another input."""
    place = layout.Layout.of(site.spec)
    arguments: Object = {
        "repo": argo.repo,
        "branch": argo.branch,
        "revision": argo.revision,
        "path": argo.path,
        "environment": place.environment,
        "owned": [f"{place.home}/"],
        "kept": [f"{place.overlay}/"],
        "tree": {"file": TREE_FILE, "digest": site.tree_digest},
    }
    arguments |= {"credentials": access.GIT_CREDENTIALS} if argo.credentials else {}
    arguments |= {"known_hosts": access.GIT_KNOWN_HOSTS} if argo.known_hosts else {}
    arguments |= {"ca": access.GIT_CA} if argo.ca else {}
    return Step(task=task(STAGE, "publish", Verb.PUBLISH, deadline=PUBLISH_SECONDS, arguments=arguments))


def _delivery(site: Site, argo: ArgoCd) -> Step:
    expectations = _delivery_expectations(site, argo)
    arguments: Object = {
        "gate": DELIVERY,
        "stable_seconds": 10,
        "namespace": argo.namespace,
        **({"repo": argo.repo} if argo.credentials else {}),  # no Secret to look for, no right to list them
        "projects": [one["name"] for one in expectations["projects"]],
        "namespaces": [argo.namespace],
        **_trusted(argo),
    }
    return Step(
        task=task(STAGE, "delivery", Verb.WAIT, deadline=SECONDS, arguments=arguments, expectations=expectations),
        rules=_delivery_rules(argo),
    )
