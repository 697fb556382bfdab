"""Types of stage factory_projects: observations of projects and of answers about rights, and the expectations of its gates."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import Struct

DEVELOPER, BUILDER = "developer", "builder"
"""Names of the ServiceAccounts of each project: of those who submit, and of the pods that build."""


class Deed(NamedTuple):
    """Something that a developer may or may not do: a verb, an API group, and a resource with its sub-resource."""

    verb: str
    group: str
    resource: str
    subresource: str = ""

    @property
    def text(self) -> str:
        """Return the deed as words, such as `get pods/log`."""
        return f"{self.verb} {self.resource}{f'/{self.subresource}' if self.subresource else ''}"


ALLOWED = (
    Deed("create", "argoproj.io", "workflows"),
    Deed("list", "argoproj.io", "workflows"),
    Deed("get", "argoproj.io", "workflowtemplates"),
    Deed("get", "", "pods", "log"),
)
"""Deeds that a developer may do in the namespace of the project: submit, and read results and logs."""
REFUSED = (
    # who changes a Workflow can answer its approval, and so promote
    Deed("patch", "argoproj.io", "workflows"),
    Deed("update", "argoproj.io", "workflows"),
    Deed("create", "argoproj.io", "workflowtemplates"),
    Deed("patch", "argoproj.io", "workflowtemplates"),
    Deed("patch", "argoproj.io", "cronworkflows"),
    Deed("create", "", "pods"),
    Deed("create", "", "pods", "exec"),
    Deed("get", "", "secrets"),
    Deed("patch", "", "configmaps"),
    Deed("delete", "", "resourcequotas"),
    Deed("create", "rbac.authorization.k8s.io", "rolebindings"),
)
"""Deeds that a developer may not do in the namespace of the project: promote, release templates, read secrets, take rights."""
OUTSIDE = (Deed("create", "argoproj.io", "workflows"), Deed("get", "", "secrets"), Deed("create", "helm.cattle.io", "helmcharts"))
"""Deeds that a developer may not do in another project or in kube-system."""


_SERVICE_ACCOUNTS, SYSTEM = "system:serviceaccounts", "kube-system"


class Question(NamedTuple):
    """A question to the authorizer: may `subject`, a member of `groups`, do `deed` in `namespace`; `allowed` is what must come."""

    subject: str
    groups: tuple[str, ...]
    namespace: str
    deed: Deed
    allowed: bool


def questions(projects: Mapping[str, Iterable[str]], users: Mapping[str, Iterable[str]]) -> Iterator[Question]:
    """Yield the questions about developers: about their own project, another, and kube-system.

    `projects` maps each project to its groups, `users` to the people whom the spec names. No question comes twice, as it would
    about developers of two projects.
    """
    yield from dict.fromkeys(_questions(projects, users))


def _questions(projects: Mapping[str, Iterable[str]], users: Mapping[str, Iterable[str]]) -> Iterator[Question]:
    names = sorted(projects)
    for project in names:
        other = next((name for name in names if name != project), "default")
        # a token of an account is in these groups: https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/
        own = (_SERVICE_ACCOUNTS, f"{_SERVICE_ACCOUNTS}:{project}", "system:authenticated")
        subjects: list[tuple[str, tuple[str, ...]]] = [(f"system:serviceaccount:{project}:{DEVELOPER}", own)]
        # a group may be that of several projects, so its members may submit in another one
        subjects += [(f"member of {group}", (group, "system:authenticated")) for group in projects[project]]
        # their groups are known to the identity provider alone; rights of their own are seen here
        subjects += [(user, ("system:authenticated",)) for user in users.get(project, ())]
        for subject, groups in subjects:
            for deed in (*ALLOWED, *REFUSED):
                yield Question(subject, groups, project, deed, deed in ALLOWED)
            shared = any(group in groups for group in projects.get(other, ())) or subject in users.get(other, ())
            for namespace in (other, SYSTEM):
                for deed in OUTSIDE:
                    yield Question(subject, groups, namespace, deed, deed in ALLOWED and shared and namespace == other)


class ProjectState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A project as the cluster shows it.

    `hard` is the quota that the API server counts (its status), `requests` are the requests that containers get if they state none.
    `priority` is None without a PriorityClass. `accounts` are the ServiceAccounts that exist.
    """

    name: str
    exists: bool = False
    hard: dict[str, str] = {}
    requests: dict[str, str] = {}
    priority: int | None = None
    accounts: tuple[str, ...] = ()


class ControlObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_projects/control: the state of each project that the task names."""

    projects: tuple[ProjectState, ...] = ()


class WantedProject(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A project of the plan: its quota, the requests of its containers, and its priority."""

    name: str
    hard: dict[str, str]
    requests: dict[str, str]
    priority: int


class ControlExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_projects/control: each of `projects` is as planned."""

    projects: tuple[WantedProject, ...] = ()


class AccessAnswer(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An answer of the authorizer: who asked, in which namespace, about which deed."""

    subject: str
    namespace: str
    deed: str
    allowed: bool


class AccessObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gate factory_projects/access: the answers of the authorizer about developers."""

    answers: tuple[AccessAnswer, ...] = ()


class AccessExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of the gate factory_projects/access: who submits in which project, besides its account `developer`.

    `projects` maps each project to the groups of its developers, `users` those projects that name people to their names.
    """

    projects: dict[str, tuple[str, ...]] = {}
    users: dict[str, tuple[str, ...]] = {}
