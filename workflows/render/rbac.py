"""Who may do what: one ServiceAccount a verb in home, and one least-privilege ClusterRole a task on the target."""

from collections.abc import Iterable
from typing import Any

from steps.contract.task import Verb
from workflows.plan.model import Plan
from workflows.render import names, steps
from workflows.stages.stage import Rule

Object = dict[str, Any]
RUNTIME_SECRETS = "bringup-runtime"
"""The one Secret in home for what is made at run time: join token and kubeconfig (design §4)."""


def home(plan: Plan, settings: steps.Settings) -> list[Object]:
    """ServiceAccounts, Roles and RoleBindings in home: report task results; the verb that makes a cluster may keep its secrets."""
    objects: list[Object] = []
    for verb in sorted({task.verb for task in plan.tasks}):
        name, namespace = steps.account(verb.value), settings.namespace
        meta = {"name": name, "namespace": namespace, "labels": {"bringup/verb": verb.value}}
        rules = [_rule(["argoproj.io"], ["workflowtaskresults"], ["create", "patch"])]
        if verb is Verb.PLAY:
            rules.append(_rule([""], ["secrets"], ["get", "patch", "update"], [RUNTIME_SECRETS]))
        subject = {"kind": "ServiceAccount", "name": name, "namespace": namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        objects += [
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": meta, "rules": rules},
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": meta,
                "roleRef": reference,
                "subjects": [subject],
            },
        ]
    return objects


def target(plan: Plan) -> list[Object]:
    """ClusterRoles for the target, one for each task that has rules there.

    Who may create HelmCharts in kube-system is cluster-admin in effect, because the helm-controller installs whatever they name
    with its own rights: the annotation says so.
    """
    roles: list[Object] = []
    for stage in plan.stages:
        for step in stage.steps:
            if not step.rules:
                continue
            admin = any("helmcharts" in rule.resources and "patch" in rule.verbs for rule in step.rules)
            note = {"bringup/note": "may create HelmCharts: cluster-admin in effect"} if admin else {}
            meta = {"name": f"bringup-{names.template(stage.id, step.name)}", "annotations": note}
            rules = [_target_rule(rule) for rule in step.rules]
            roles.append({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": meta, "rules": rules})
    return roles


def _target_rule(rule: Rule) -> Object:
    return _rule(rule.groups, rule.resources, rule.verbs)


def _rule(groups: Iterable[str], resources: Iterable[str], verbs: Iterable[str], named: Iterable[str] = ()) -> Object:
    rule: Object = {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}
    return {**rule, "resourceNames": list(named)} if named else rule
