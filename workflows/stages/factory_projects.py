"""Stage factory_projects: a namespace with quota and priority for each project, and developers who submit and read logs alone."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from steps.stages.factory_projects.contract import BUILDER, DEVELOPER
from workflows.spec.pipelines.factory_spec import FactoryProject
from workflows.stages import rights
from workflows.stages.factory_site import FactorySite, control_step, judge, metadata, namespace
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

ID: Final = "factory_projects"
CONTROL, ACCESS = f"{ID}/control", f"{ID}/access"
DEADLINE, ACCESS_SECONDS = 300, 300
_RBAC = "rbac.authorization.k8s.io"
_ARGO = "argoproj.io"
_DEVELOPER_RULES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (_ARGO, ("workflows",), ("create", "get", "list", "watch")),
    (_ARGO, ("workflowtemplates", "cronworkflows"), ("get", "list", "watch")),
    ("", ("pods", "pods/log", "events"), ("get", "list", "watch")),
)
"""Rights of developers. Nobody who may patch a Workflow is among them, because that answers an approval."""
_BUILDER_RULES = ((_ARGO, ("workflowtaskresults",), ("create", "patch")),)
"""Rights of pods that build: Argo's executor reports results."""


def build(site: FactorySite) -> Stage:
    """Return stage factory_projects."""
    projects = site.factory.projects
    wanted = [_wanted(name, project) for name, project in projects.items()]
    applies = tuple(_apply(name, project) for name, project in projects.items())
    control = control_step(
        ID,
        DEADLINE,
        {"projects": wanted},
        _reads(site),
        after=tuple(step.name for step in applies),
        stable_seconds=0,
        namespaces=list(projects),
    )
    developers = site.factory.developers
    access = Step(
        task=task(
            ID,
            "access",
            Verb.WAIT,
            deadline=ACCESS_SECONDS,
            arguments={"gate": ACCESS, **developers},
            expectations=developers,
        ),
        after=("control",),
        rules=(
            Rule(groups=("authorization.k8s.io",), resources=("subjectaccessreviews",), verbs=("create",)),
            *rights.DIAGNOSE,
        ),
    )
    return Stage(
        id=ID,
        title="Projects",
        steps=(*applies, control, access, judge(site, ID, {"control": CONTROL, "access": ACCESS})),
        gates=(CONTROL, ACCESS),
        changes=tuple(
            Change(what=f"namespace with {project.quota.cpu} cores and {project.quota.memory}", where=name)
            for name, project in projects.items()
        ),
        rollback="kubectl delete namespace PROJECT and priorityclass project-PROJECT; builds that run there end",
    )


def priority_class(project: str) -> str:
    """Return the name of a project's PriorityClass."""
    return f"project-{project}"


def _hard(project: FactoryProject) -> dict[str, str]:
    quota = project.quota
    return {
        "requests.cpu": quota.cpu,
        "requests.memory": quota.memory,
        "requests.storage": quota.storage,
        "pods": str(quota.pods),
    }


def _wanted(name: str, project: FactoryProject) -> Object:
    requests = {"cpu": project.pod.cpu, "memory": project.pod.memory}
    return {"name": name, "hard": _hard(project), "requests": requests, "priority": project.priority}


def _apply(name: str, project: FactoryProject) -> Step:
    """Return the task that applies the objects of one project; one for each, because a task file holds at most 8 kB."""
    space = (name,)
    verbs = ("get", "create", "patch")
    return Step(
        task=task(ID, f"apply_{name.replace('-', '_')}", Verb.APPLY, deadline=300, arguments={"objects": _objects(name, project)}),
        rules=(
            *rights.CLAIM,
            Rule(groups=("",), resources=("namespaces",), verbs=verbs),
            Rule(groups=("scheduling.k8s.io",), resources=("priorityclasses",), verbs=verbs),
            Rule(groups=("",), resources=("resourcequotas", "limitranges", "serviceaccounts"), verbs=verbs, namespaces=space),
            Rule(groups=(_RBAC,), resources=("roles", "rolebindings"), verbs=verbs, namespaces=space),
            # who gives a right must have it
            *(
                Rule(groups=(group,), resources=resources, verbs=given_verbs, namespaces=space)
                for group, resources, given_verbs in (*_DEVELOPER_RULES, *_BUILDER_RULES)
            ),
            *rights.DIAGNOSE,
        ),
    )


def _reads(site: FactorySite) -> tuple[Rule, ...]:
    return (
        Rule(groups=("",), resources=("namespaces",), verbs=("get",)),
        Rule(groups=("scheduling.k8s.io",), resources=("priorityclasses",), verbs=("get",)),
        Rule(
            groups=("",),
            resources=("resourcequotas", "limitranges", "serviceaccounts"),
            verbs=("get", "list"),
            namespaces=tuple(site.factory.projects),
        ),
        *rights.DIAGNOSE,
    )


def _objects(name: str, project: FactoryProject) -> list[Object]:
    """Return the objects of a project in the order in which they are applied."""
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata("project", name), "spec": {"hard": _hard(project)}}
    requests = {"cpu": project.pod.cpu, "memory": project.pod.memory}
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": metadata("project", name),
        "spec": {"limits": [{"type": "Container", "defaultRequest": requests}]},
    }
    priority = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": metadata(priority_class(name)),
        "value": project.priority,
        "description": f"Builds of project {name}",
    }
    people = [{"kind": "User", "name": user, "apiGroup": _RBAC} for user in project.users]
    people += [{"kind": "Group", "name": group, "apiGroup": _RBAC} for group in project.groups]
    return [
        priority,
        namespace(name, **{"bringup/project": name}),
        quota,
        limits,
        *_account(BUILDER, name, _BUILDER_RULES, []),
        *_account(DEVELOPER, name, _DEVELOPER_RULES, people),
    ]


def _account(
    account: str, space: str, rules: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...], people: list[dict[str, str]]
) -> list[Object]:
    """Return a ServiceAccount, its Role and its RoleBinding, which also binds `people`."""
    role_rules = [{"apiGroups": [group], "resources": list(names), "verbs": list(verbs)} for group, names, verbs in rules]
    own = {"kind": "ServiceAccount", "name": account, "namespace": space}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(account, space)},
        {"apiVersion": f"{_RBAC}/v1", "kind": "Role", "metadata": metadata(account, space), "rules": role_rules},
        {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": metadata(account, space),
            "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": account},
            "subjects": [own, *people],
        },
    ]
