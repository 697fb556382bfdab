"""Accounts and roles: in the home cluster for Argo's executor, verbs and people who submit; on the target for each task."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from workflows.plan.model import Plan
from workflows.render import names, steps
from workflows.stages.rights import CLAIM
from workflows.stages.stage import Rule

Object = dict[str, Any]
Rights = dict[tuple[str, str], frozenset[str]]
"""(API group, resource) → the allowed verbs."""

RBAC = "rbac.authorization.k8s.io"
TARGET_NAMESPACE = "bringup"
"""Namespace on the target cluster for the ServiceAccounts of tasks."""
CLUSTER_WIDE = ""
BUILT_IN = frozenset({"default", "kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that Kubernetes creates itself."""

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
"""Rights that allow more than they name: (API group, resource), verbs, and the note for the role's annotation.

The helm-controller installs whatever a HelmChart names, with its own rights. Argo CD installs whatever an Application names and its
project allows. A Workflow runs with the account that it names, and mounts what it names.
"""


SUBMITTER = "bringup-submitter"
"""Name of the Role for people who submit runs; an admin binds it to them."""

_INSTALL = frozenset({"get", "create", "patch"})
SUBMITTER_RIGHTS: Rights = {
    ("argoproj.io", "workflowtemplates"): _INSTALL | {"list"},
    ("", "configmaps"): _INSTALL,
    (RBAC, "roles"): _INSTALL,
    (RBAC, "rolebindings"): _INSTALL,
    ("", "secrets"): frozenset({"create", "patch", "delete"}),
    ("", "services"): frozenset({"create", "patch", "delete"}),
    ("", "serviceaccounts"): _INSTALL | {"delete"},
    ("argoproj.io", "cronworkflows"): _INSTALL | {"list", "delete"},
    ("argoproj.io", "workfloweventbindings"): _INSTALL | {"list", "delete"},
    ("argoproj.io", "workflows"): frozenset({"get", "list", "watch", "create", "patch"}),
    ("argoproj.io", "workflowtaskresults"): frozenset({"create", "patch", "list"}),
    ("", "pods"): frozenset({"get", "list", "watch", "create", "patch", "delete"}),
    ("", "pods/log"): frozenset({"get"}),
    ("", "persistentvolumeclaims"): frozenset({"get"}),
    ("apps", "deployments"): frozenset({"list"}),
}
"""Rights in the home cluster that bringup's commands need.

Task results are included because nobody may grant rights that he has not, and an installation grants them to the executor. They are
listed to tell a controller that is away from an executor that may not report. Services, and the deletion of Secrets, are for the
simulating pod of a rehearsal. Deployments show the controller's version if it runs in the same namespace; otherwise the option
`--argo-version` gives it.
"""


def home(plan: Plan, settings: steps.Settings) -> list[Object]:
    """Return the objects for the home cluster: Argo's executor with token and rights, a Role for people, an account per verb.

    The executor may report task results; the accounts of verbs have no rights. Without the token Secret Argo would refuse to create
    a pod that mounts no token.
    """
    results: Rights = {("argoproj.io", "workflowtaskresults"): frozenset({"create", "patch"})}
    executor = account(steps.EXECUTOR, settings.namespace)
    objects = [executor, token(executor), *role_and_binding(executor, settings.namespace, results), submitter(settings.namespace)]
    for verb in sorted({task.verb for task in plan.tasks}):
        own = account(steps.account(verb.value), settings.namespace)
        own["metadata"]["labels"] = {"bringup/verb": verb.value}
        objects.append(own)
    return objects


def submitter(namespace: str) -> Object:
    """Return the Role for people who submit runs in the home cluster; nobody is bound to it."""
    return role({"name": SUBMITTER, "namespace": namespace}, SUBMITTER_RIGHTS)


def token(owner: Object) -> Object:
    """Return the Secret for an account's long-lived token, under the name by which Argo looks for it; Kubernetes fills it in."""
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
    """Return accounts and roles for a target cluster: Namespaces first, then a ServiceAccount and roles for each task.

    No run installs or uses these objects, since steps act as the user of their kubeconfig. They show what that user needs, for
    review and for sites that make a kubeconfig of their own. The first task of a plan with plays takes the target's lease and the
    last one releases it, so both get the rights of a claim.

    Rules without namespaces become a ClusterRole, the others one Role in each of their namespaces; all are called
    `bringup-STAGE-TASK`. A Role needs its namespace to exist, even if a stage creates it later. So the Namespaces come first, bare,
    and the stage's own server-side apply adds labels to them.
    """
    objects: list[Object] = []
    spaces = {TARGET_NAMESPACE}
    tasks = [(stage.id, step.name, step.rules) for stage in plan.stages for step in stage.steps]
    ends = (*((plan.open_task,) if plan.open_task.arguments.get("ssh") else ()), plan.end_tasks[-1])
    for stage_id, name, rules in (*tasks, *((task.stage, task.name, CLAIM) for task in ends)):
        merged = merge(rules)
        if not merged:
            continue
        own = account(f"bringup-{names.template(stage_id, name)}", TARGET_NAMESPACE)
        objects.append(own)
        for space, rights in merged.items():
            objects += role_and_binding(own, space, rights)
            spaces.add(space)
    if not any(rules for _, _, rules in tasks):
        return []
    namespaces = sorted(spaces - BUILT_IN - {CLUSTER_WIDE})
    return [*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": space}} for space in namespaces), *objects]


def merge(rules: Iterable[Rule]) -> dict[str, Rights]:
    """Return namespace → rights, CLUSTER_WIDE first; a right that holds cluster-wide is left out of the namespaces."""
    by_namespace: dict[str, defaultdict[tuple[str, str], set[str]]] = {}
    for rule in rules:
        for space in rule.namespaces or (CLUSTER_WIDE,):
            rights = by_namespace.setdefault(space, defaultdict(set))
            for key in ((group, resource) for group in rule.groups for resource in rule.resources):
                rights[key].update(rule.verbs)
    everywhere: Mapping[tuple[str, str], set[str]] = by_namespace.get(CLUSTER_WIDE, {})
    merged: dict[str, Rights] = {}
    for space in sorted(by_namespace):
        covered = everywhere if space != CLUSTER_WIDE else {}
        remaining = {key: frozenset(verbs - covered.get(key, set())) for key, verbs in sorted(by_namespace[space].items())}
        if any(remaining.values()):
            merged[space] = {key: verbs for key, verbs in remaining.items() if verbs}
    return merged


def account(name: str, namespace: str) -> Object:
    """Return a ServiceAccount whose token is mounted only in pods that ask for it."""
    meta = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta, "automountServiceAccountToken": False}


def role_and_binding(owner: Object, namespace: str, rights: Rights) -> Iterator[Object]:
    """Yield a role with these rights and its binding to the account `owner`; cluster-wide if the namespace is CLUSTER_WIDE."""
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
    """Return a Role, or a ClusterRole if `meta` has no namespace; an annotation warns of rights that allow more than they name."""
    notes = [note for key, verbs, note in ESCALATIONS if rights.get(key, frozenset()) & verbs]
    noted = {**meta, "annotations": {"bringup/note": "; ".join(notes)}} if notes else meta
    kind = "Role" if "namespace" in meta else "ClusterRole"
    return {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": noted, "rules": _rules(rights)}


def _rules(rights: Rights) -> list[Object]:
    """Return the rights as rules of a role; resources of one group with the same verbs share a rule."""
    shared: defaultdict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (group, resource), verbs in rights.items():
        shared[group, tuple(sorted(verbs))].append(resource)
    return [
        {"apiGroups": [group], "resources": resources, "verbs": list(verbs)} for (group, verbs), resources in sorted(shared.items())
    ]
