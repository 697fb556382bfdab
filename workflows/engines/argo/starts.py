"""What starts runs without a person, on the home cluster: taken away when the spec drops it, suspended, resumed.

`suspend` belongs to whoever set it last: an installation writes it only where the spec says so, so a schedule that was suspended
here stays suspended when the next revision is installed.
"""

from collections.abc import Sequence

from msgspec import Struct, field

from steps.clients.kube.api import ApiError
from steps.clients.kube.client import Kube
from steps.errors import Refused
from workflows import image
from workflows.engines.argo.home import Home
from workflows.engines.argo.objects import API, CLUSTER, PIPELINE, STARTS, Workflow
from workflows.render import from_git, starts
from workflows.render.bundle import Bundle

KINDS = ("cronworkflows", "workfloweventbindings")


class NoSchedule(ValueError):
    """The home cluster has no schedule of that name."""

    hint = "a schedule is a section of the spec; it is installed by `bringup run --engine argo`, or from `bringup render`"


class Ambiguous(ValueError):
    """Several pipelines have a schedule of that name."""

    hint = "say which: --pipeline NAME"


class Changed(ValueError):
    """Somebody else changed the schedule at the same time."""

    hint = "look at it, then try again"


class _Meta(Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class Cron(Struct, frozen=True):
    """When a schedule starts runs."""

    suspend: bool = False
    schedules: tuple[str, ...] = ()
    timezone: str = ""


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    message: str = ""


class Seen(Struct, frozen=True, rename="camel"):
    """What the controller says of a schedule: when it started a run last, which runs of it go on, what is wrong with it."""

    last_scheduled_time: str | None = None
    active: tuple[_Meta, ...] = ()
    conditions: tuple[_Condition, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Why it cannot start a run."""
        return tuple(f"{one.type}: {one.message}" for one in self.conditions if one.status == "True" and one.type != "Completed")


class Start(Struct, frozen=True):
    """A CronWorkflow or a WorkflowEventBinding, as far as it matters here."""

    metadata: _Meta = _Meta()
    spec: Cron = field(default_factory=Cron)
    status: Seen = field(default_factory=Seen)


def _path(home: Home, kind: str, name: str = "") -> str:
    return f"/apis/{API}/namespaces/{home.namespace}/{kind}{f'/{name}' if name else ''}"


def retire(home: Home, cluster: str, bundle: Bundle) -> None:
    """Delete what the cluster's spec has no more; what this person may not list is left. Raises Refused."""
    kept = {manifest["metadata"]["name"] for manifest in bundle.starts or ()}
    labels = bundle.template["metadata"]["labels"]
    gone = {kind: [one for one in _ours(home, kind, labels) if one not in kept] for kind in KINDS}
    owners = {"workfloweventbindings": starts.account_name(cluster)}
    if labels[PIPELINE] == image.KIND:  # a cluster of the same name has its own schedule, without an account
        owners["cronworkflows"] = from_git.account_name(cluster)
    for kind, owner in owners.items():
        if gone[kind] and owner not in kept:
            _delete(home, home.core("serviceaccounts", owner))  # first: its token ends with it
    for kind, stale in gone.items():
        for name in stale:
            _delete(home, _path(home, kind, name))


def _ours(home: Home, kind: str, labels: dict[str, str]) -> list[str]:
    selector = ",".join(f"{key}={labels[key]}" for key in (CLUSTER, PIPELINE))

    def listed(kube: Kube) -> tuple[Start, ...] | None:
        return kube.list(_path(home, kind), Start, labels=selector)

    try:
        return [one.metadata.name for one in home.ask(listed) or ()]
    except Refused:
        return []


def _delete(home: Home, path: str) -> None:
    def once(kube: Kube) -> bool:
        return kube.delete(path)

    home.ask(once)


def schedule(home: Home, cluster: str, kind: str) -> Start:
    """A cluster's schedule as it is now. Raises NoSchedule, Refused."""
    path = _path(home, "cronworkflows", starts.cron_name(kind, cluster))
    there = home.ask(lambda kube: kube.get(path, Start))
    if there is None:
        raise NoSchedule(f"namespace {home.namespace} of the home cluster has no schedule of {cluster}")
    return there


def last_start(home: Home, name: str, kind: str) -> Workflow | None:
    """The newest Workflow that was to start a run of that pipeline and spec; None where starts need none, or none is left."""
    found = home.ask(lambda kube: kube.list(home.workflows(), Workflow, labels=f"{STARTS}={kind},{CLUSTER}={name}")) or ()
    return max(found, key=lambda one: (one.metadata.creation_timestamp, one.metadata.name), default=None)


def kind_of(home: Home, name: str, kinds: Sequence[str]) -> str:
    """Which of these pipelines has a schedule of that name. Raises NoSchedule, Ambiguous, Refused."""

    def there(kind: str) -> Start | None:
        path = _path(home, "cronworkflows", starts.cron_name(kind, name))
        return home.ask(lambda kube: kube.get(path, Start))

    found = [kind for kind in kinds if there(kind) is not None]
    if not found:
        raise NoSchedule(f"namespace {home.namespace} of the home cluster has no schedule of {name}")
    if len(found) > 1:
        raise Ambiguous(f"there are schedules of {' and '.join(found)} with the name {name}")
    return found[0]


def suspend(home: Home, cluster: str, kind: str, *, wanted: bool) -> bool:
    """Suspend a cluster's schedule or let it go on; whether that changed anything. Raises NoSchedule, Changed, Refused.

    To go on takes the field away, so that it is nobody's and a spec with `suspend: true` can be installed again.
    """
    path, there = _path(home, "cronworkflows", starts.cron_name(kind, cluster)), schedule(home, cluster, kind)
    if there.spec.suspend == wanted:
        return False
    patch = {"metadata": {"resourceVersion": there.metadata.resource_version}, "spec": {"suspend": True if wanted else None}}
    try:
        home.ask(lambda kube: kube.merge(path, patch))
    except ApiError as error:
        if error.status != 409:
            raise
        raise Changed(f"the schedule of {cluster} was changed meanwhile") from error
    return True
