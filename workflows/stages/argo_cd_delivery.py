"""Tasks that let Argo CD deploy the charts, the first tasks of stage base_services: install Argo CD, set it up, push files to Git.

Two gates read the result back before any release is applied: `argo_cd` checks Argo CD itself, `delivery` its settings.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools

from steps.contract.delivery import TREE_FILE, server, ssh_host, text_digest
from steps.contract.task import Verb
from workflows.catalog import PlannedRelease
from workflows.catalog.templating import merge
from workflows.gitops import layout, projects
from workflows.spec.sections.argocd_delivery import ArgoCdDelivery
from workflows.stages import host_access, manifest_objects, rights
from workflows.stages.stage import Change, Object, Rule, Site, Step, task

STAGE = "base_services"
ARGO_CD, DELIVERY = "base_services/argo_cd", "base_services/delivery"
SECONDS = 300
PUBLISH_SECONDS = 600
"""Time limit in seconds of a push to Git, which is built again on top of commits that others pushed meanwhile."""
RESOURCE_HEALTH = "controller.resource.health.persist"
"""Setting that makes Argo CD store the health of single resources, off since Argo CD 3.0
(https://argo-cd.readthedocs.io/en/stable/operator-manual/upgrading/2.14-3.0/).
"""
CRDS = ("applications.argoproj.io", "applicationsets.argoproj.io", "appprojects.argoproj.io")
WORKLOADS = 4
"""Smallest number of workloads of Argo CD: application controller, repo server, ApplicationSet controller, Redis.

argocd-server is extra, because it is optional.
"""


def steps(site: Site) -> tuple[Step, ...]:
    """Return the tasks that set up deployment by Argo CD, one after another; empty if helm-controller installs the charts."""
    argo = site.spec.delivery.argo_cd
    if argo is None:
        return ()
    expectations, rules = _argo_cd_expectations(site, argo), _argo_cd_rules(site, argo)
    steps = [
        manifest_objects.apply_step(site, STAGE, (release,), ARGO_CD, expectations, rules, name="argo_cd_install")
        for release in installed_argo_cd(site)
    ]
    steps += [_argo_cd(site, argo), _settings(site, argo), _publish(site, argo), _delivery(site, argo)]
    chained = (dataclasses.replace(step, after=(before.name,)) for before, step in itertools.pairwise(steps))
    return (steps[0], *chained)


def gates(site: Site) -> dict[str, str]:
    """Return task name → gate id for the two tasks of `steps` that have a gate; empty without Argo CD."""
    return {"argo_cd": ARGO_CD, "delivery": DELIVERY} if site.spec.delivery.argo_cd else {}


def installed_argo_cd(site: Site) -> tuple[PlannedRelease, ...]:
    """Return the release of Argo CD's own chart, with bringup's keys of argocd-cm merged into its values.

    The result is empty if this run does not install Argo CD.
    """
    release = site.releases.get(layout.INSTALLER)
    if release is None:
        return ()
    keys = projects.settings(site.releases.values())
    # the chart owns argocd-cm: keys that are set in any other way would be undone by its next upgrade
    # stored health of single resources lets gates tell which ones a quorum spares
    configs = {"cm": keys, "params": {RESOURCE_HEALTH: "true"}}
    return (dataclasses.replace(release, values=merge(release.values, {"configs": configs})),)


def changes(site: Site) -> tuple[Change, ...]:
    """Return the changes that the tasks of `steps` make, for display in the plan."""
    argo = site.spec.delivery.argo_cd
    if argo is None:
        return ()
    result = list(manifest_objects.installs(installed_argo_cd(site)))
    result.append(Change(what=f"apply AppProject {argo.project} and {projects.roots_project(argo)}", where=argo.namespace))
    if not argo.install:
        result.append(Change(what="set keys of argocd-cm", where=argo.namespace))
    if not argo.is_commit:
        result.append(Change(what=f"commit to {argo.branch} and tag {argo.revision}", where=argo.repo))
    return tuple(result)


# ---- Argo CD itself ------------------------------------------------------------------------------------------------------------


def _argo_cd_expectations(site: Site, argo: ArgoCdDelivery) -> Object:
    expectations: Object = {"namespace": argo.namespace, "version": argo.version, "crds": list(CRDS)}
    releases = [manifest_objects.expected_release(site, release, workloads=WORKLOADS) for release in installed_argo_cd(site)]
    return expectations | ({"releases": releases} if releases else {})


def _argo_cd_rules(site: Site, argo: ArgoCdDelivery) -> tuple[Rule, ...]:
    workloads = Rule(
        groups=("apps",), resources=("deployments", "statefulsets", "daemonsets"), verbs=("list",), namespaces=(argo.namespace,)
    )
    return (*rights.gate_rules(site, installed_argo_cd(site)), workloads, rights.CRDS)


def _argo_cd(site: Site, argo: ArgoCdDelivery) -> Step:
    expectations = _argo_cd_expectations(site, argo)
    compared: Object = {key: expectations[key] for key in ("namespace", "crds", "releases") if key in expectations}
    arguments = {"gate": ARGO_CD, "stable_seconds": 10, "namespaces": [argo.namespace], **compared}
    seconds = SECONDS + sum(release.timeout_seconds for release in installed_argo_cd(site))
    return Step(
        task=task(STAGE, "argo_cd", Verb.WAIT, deadline=seconds, arguments=arguments, expectations=expectations),
        rules=_argo_cd_rules(site, argo),
    )


# ---- its settings and its tree -------------------------------------------------------------------------------------------------


def _keys(site: Site) -> dict[str, str]:
    """Return key → digest of its text for bringup's keys of argocd-cm; the texts themselves are too large for a task."""
    return {key: text_digest(text) for key, text in projects.settings(site.releases.values()).items()}


def _trusted(argo: ArgoCdDelivery) -> Object:
    """Return the task arguments that make Argo CD trust the Git server: its host name, and the secret files with host keys or CA.

    The result is empty if the spec gives neither host keys nor a CA.
    """
    trusted: Object = {}
    if argo.known_hosts:
        trusted["known_hosts"] = {"namespace": argo.namespace, "host": ssh_host(argo.repo), "file": host_access.GIT_KNOWN_HOSTS}
    if argo.ca:
        trusted["certificates"] = {"namespace": argo.namespace, "host": server(argo.repo), "file": host_access.GIT_CA}
    return trusted


def _settings(site: Site, argo: ArgoCdDelivery) -> Step:
    """Return the task that applies AppProjects, keys of argocd-cm, trusted Git servers, and the Secret for the repository.

    The task names no gate that could skip it, because the gate `delivery` reads everything back in any case.
    """
    space = (argo.namespace,)
    arguments: Object = {"objects": projects.projects(site.spec, site.releases.values())}
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
            "credentials": host_access.GIT_CREDENTIALS,
        }
        rules.append(Rule(groups=("",), resources=("secrets",), verbs=("get", "create", "patch"), namespaces=space))
    return Step(
        task=task(STAGE, "delivery_settings", Verb.APPLY, deadline=SECONDS, arguments=arguments),
        rules=(*rules, *rights.CLAIM, *rights.DIAGNOSE),
    )


def _publish(site: Site, argo: ArgoCdDelivery) -> Step:
    """Return the task that pushes the rendered files to Git; it changes nothing in the cluster.

    Its arguments contain the digest of these files, so the task runs again if a file changes.
    """
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
    arguments |= {"credentials": host_access.GIT_CREDENTIALS} if argo.credentials else {}
    arguments |= {"known_hosts": host_access.GIT_KNOWN_HOSTS} if argo.known_hosts else {}
    arguments |= {"ca": host_access.GIT_CA} if argo.ca else {}
    return Step(task=task(STAGE, "publish", Verb.PUBLISH, deadline=PUBLISH_SECONDS, arguments=arguments))


def _delivery(site: Site, argo: ArgoCdDelivery) -> Step:
    space = (argo.namespace,)
    applied = projects.projects(site.spec, site.releases.values())
    expectations: Object = {
        "namespace": argo.namespace,
        "repo": argo.repo,
        "keys": _keys(site),
        "projects": [{"name": project["metadata"]["name"], "spec": project["spec"]} for project in applied],
        **({"credentials": True} if argo.credentials else {}),
        **({"host_keys": True} if argo.known_hosts else {}),
        **({"certificates": True} if argo.ca else {}),
    }
    arguments: Object = {
        "gate": DELIVERY,
        "stable_seconds": 10,
        "namespace": argo.namespace,
        # without credentials there is no Secret to find, and the task has no right to list Secrets
        **({"repo": argo.repo} if argo.credentials else {}),
        "projects": [project["name"] for project in expectations["projects"]],
        "namespaces": [argo.namespace],
        **_trusted(argo),
    }
    return Step(
        task=task(STAGE, "delivery", Verb.WAIT, deadline=SECONDS, arguments=arguments, expectations=expectations),
        rules=(
            Rule(groups=("argoproj.io",), resources=("appprojects",), verbs=("get",), namespaces=space),
            Rule(groups=("",), resources=("configmaps",), verbs=("get",), namespaces=space),
            *((Rule(groups=("",), resources=("secrets",), verbs=("list",), namespaces=space),) if argo.credentials else ()),
            *rights.DIAGNOSE,
        ),
    )
