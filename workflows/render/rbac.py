"""Who may do what: in home Argo's executor, an account a verb without rights, who submits; on the target an account a task."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workflows.plan.model import Plan
from workflows.render import names, steps
from workflows.stages.rights import CLAIM
from workflows.stages.stage import Rule

Object = dict[str, Any]
Rights = dict[tuple[str, str], frozenset[str]]
"""(API group, resource) → verbs."""

RBAC = "rbac.authorization.k8s.io"
TARGET_NAMESPACE = "bringup"
"""Namespace of the tasks' ServiceAccounts on the target."""
CLUSTER_WIDE = ""
BUILT_IN = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that every cluster has from its start."""

ESCALATIONS = (
    (("helm.cattle.io", "helmcharts"), frozenset({"create", "patch", "update"}), "may create HelmCharts: cluster-admin in effect"),
    ((RBAC, "clusterroles"), frozenset({"bind", "escalate"}), "may bind ClusterRoles: cluster-admin in effect"),
    (("", "secrets"), frozenset({"patch", "update"}), "may write Secrets: the answer shows what they hold"),
    (
        ("argoproj.io", "appprojects"),
        frozenset({"create", "patch"}),
        "may widen AppProjects: whatever Argo CD may, cluster-admin in effect",
    ),
    (
        ("argoproj.io", "applications"),
        frozenset({"create", "patch"}),
        "may create Applications: installs whatever their project allows",
    ),
    (("argoproj.io", "workflows"), frozenset({"create"}), "may create Workflows: uses every account and Secret of this namespace"),
)
"""Rights that give more than they name: the helm-controller installs whatever a HelmChart names with its own rights, Argo CD
whatever an Application names and its project allows; a Workflow runs with the account that it names and mounts what it names."""


SUBMITTER = "bringup-submitter"
"""The Role of a person who runs bring-ups; an admin binds it."""

_INSTALL = frozenset({"get", "create", "patch"})
SUBMITTER_RIGHTS: Rights = {
    ("argoproj.io", "workflowtemplates"): _INSTALL | {"list"},
    ("", "configmaps"): _INSTALL,
    (RBAC, "roles"): _INSTALL,
    (RBAC, "rolebindings"): _INSTALL,
    ("", "secrets"): frozenset({"create", "patch"}),
    ("", "serviceaccounts"): _INSTALL | {"delete"},
    ("argoproj.io", "cronworkflows"): _INSTALL | {"list", "delete"},
    ("argoproj.io", "workfloweventbindings"): _INSTALL | {"list", "delete"},
    ("argoproj.io", "workflows"): frozenset({"get", "list", "watch", "create", "patch"}),
    ("argoproj.io", "workflowtaskresults"): frozenset({"create", "patch"}),
    ("", "pods"): frozenset({"get", "list", "watch", "create", "delete"}),
    ("", "pods/log"): frozenset({"get"}),
    ("", "persistentvolumeclaims"): frozenset({"get"}),
    ("apps", "deployments"): frozenset({"list"}),
}
"""What the commands ask of home. Task results are among it because nobody may grant what he has not, and an installation grants the
executor's. Deployments tell the version of the controller, where that runs in the same namespace; else `--argo-version` does."""


def home(plan: Plan, settings: steps.Settings) -> list[Object]:
    """What home gets: Argo's own containers may report task results; the accounts of the verbs may do nothing there.

    A pod without a mounted token needs the executor's token as a Secret: Argo refuses to make the pod otherwise.
    """
    results: Rights = {("argoproj.io", "workflowtaskresults"): frozenset({"create", "patch"})}
    executor = account(steps.EXECUTOR, settings.namespace)
    objects = [executor, token(executor), *granted(executor, settings.namespace, results), submitter(settings.namespace)]
    for verb in sorted({task.verb for task in plan.tasks}):
        own = account(steps.account(verb.value), settings.namespace)
        own["metadata"]["labels"] = {"bringup/verb": verb.value}
        objects.append(own)
    return objects


def submitter(namespace: str) -> Object:
    """The Role for whoever runs bring-ups in this home; bound to nobody."""
    return role({"name": SUBMITTER, "namespace": namespace}, SUBMITTER_RIGHTS)


def token(owner: Object) -> Object:
    """The account's long-lived token, under the name by which Argo looks for it; Kubernetes fills it in."""
    meta = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{meta['name']}.service-account-token",
            "namespace": meta["namespace"],
            "annotations": {"kubernetes.io/service-account.name": meta["name"]},
        },
        "type": "kubernetes.io/service-account-token",
    }


def target(plan: Plan) -> list[Object]:
    """What a target could get: Namespaces, then for each task that has rules there a ServiceAccount and its bound roles; the
    opening of a plan with plays, which holds the target before them, and the seal, which gives it free, have those of a claim. No
    run installs or uses them, since steps act as the user of the kubeconfig that they are given: they say what that user needs, for
    review, and for a site that makes a kubeconfig of its own.

    Rules without namespaces become a ClusterRole, the others one Role in each of their namespaces; all are called
    `bringup-STAGE-TASK`. A Role can be applied only where its namespace exists, also where a stage makes that namespace later: the
    Namespaces come first, bare, so that the labels of the stage's own server-side apply are added to them.
    """
    objects: list[Object] = []
    spaces = {TARGET_NAMESPACE}
    tasks = [(stage.id, step.name, step.rules) for stage in plan.stages for step in stage.steps]
    ends = (*((plan.open_task,) if plan.open_task.arguments.get("ssh") else ()), plan.end_tasks[-1])
    for stage_id, name, rules in (*tasks, *((one.stage, one.name, CLAIM) for one in ends)):
        merged = merge(rules)
        if not merged:
            continue
        own = account(f"bringup-{names.template(stage_id, name)}", TARGET_NAMESPACE)
        objects.append(own)
        for space, rights in merged.items():
            objects += granted(own, space, rights)
            spaces.add(space)
    if not any(rules for _, _, rules in tasks):
        return []
    made = sorted(spaces - BUILT_IN - {CLUSTER_WIDE})
    return [*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}} for space in made), *objects]


def merge(rules: Iterable[Rule]) -> dict[str, Rights]:
    """Namespace (CLUSTER_WIDE first) → rights: every right once, and in no namespace what holds cluster-wide anyway."""
    found: dict[str, defaultdict[tuple[str, str], set[str]]] = {}
    for rule in rules:
        for space in rule.namespaces or (CLUSTER_WIDE,):
            rights = found.setdefault(space, defaultdict(set))
            for key in ((group, resource) for group in rule.groups for resource in rule.resources):
                rights[key].update(rule.verbs)
    everywhere: Mapping[tuple[str, str], set[str]] = found.get(CLUSTER_WIDE, {})
    merged: dict[str, Rights] = {}
    for space in sorted(found):
        covered = everywhere if space != CLUSTER_WIDE else {}
        left = {key: frozenset(verbs - covered.get(key, set())) for key, verbs in sorted(found[space].items())}
        if any(left.values()):
            merged[space] = {key: verbs for key, verbs in left.items() if verbs}
    return merged


def account(name: str, namespace: str) -> Object:
    """A ServiceAccount whose token no pod gets unasked."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}


def granted(owner: Object, namespace: str, rights: Rights) -> Iterator[Object]:
    """A role with these rights, and its binding to the account; the role says so where it gives more than it names."""
    subject = owner["metadata"]
    scope = "Cluster" if namespace == CLUSTER_WIDE else ""
    meta: Object = {"name": subject["name"]}
    if namespace != CLUSTER_WIDE:
        meta["namespace"] = namespace
    if "labels" in subject:
        meta["labels"] = subject["labels"]
    yield role(meta, rights)
    yield {
        "apiVersion": f"{RBAC}/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": RBAC, "kind": f"{scope}Role", "name": subject["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": subject["name"], "namespace": subject["namespace"]}],
    }


def role(meta: Object, rights: Rights) -> Object:
    """A Role, or a ClusterRole where `meta` names no namespace."""
    notes = [note for key, verbs, note in ESCALATIONS if rights.get(key, frozenset()) & verbs]
    noted = {**meta, "annotations": {"bringup/note": "; ".join(notes)}} if notes else meta
    kind = "Role" if "namespace" in meta else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": noted, "rules": _rules(rights)}


def _rules(rights: Rights) -> list[Object]:
    """As few rules as say it: resources of one group with the same verbs share one."""
    shared: defaultdict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), verbs in rights.items():
        shared[group, tuple(sorted(verbs))].append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(verbs)} for (group, verbs), resources in sorted(shared.items())
    ]
