"""Charts: the expectations on one Helm release, and the state of it that the cluster shows."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from msgspec import Struct

from steps.contract.canonical import digest


class Owner(StrEnum):
    """The controller that installs a release. There is exactly one for each release: two would fight over it."""

    HELM_CONTROLLER = "helm_controller"
    ARGO_CD = "argo_cd"


class Release(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of a gate on one release. Empty fields are not compared.

    - `namespace`: where its objects go. `version`: the pinned chart version.
    - `workloads`: the least number of Deployments, StatefulSets and DaemonSets of the release; 0 for a chart of CRDs only.
    - `spare`: how many nodes a DaemonSet may lack: fleet minus quorum, because nodes set aside still count as desired.
    - `home`: namespace of the owner's object: `kube-system` for HelmCharts, Argo CD's namespace for Applications.
    - `revision`: Git revision of an Application's values. `repo`, `chart`: the source of its chart.
    - `project`, `server`: its AppProject, and the cluster that it writes to.
    - `by_quorum`: kinds (GROUP/KIND) that count nodes, which the stage's own gates judge by quorum. Argo CD calls them and the
      Application Progressing for as long as one node is missing. Empty if everything must be Healthy.
    - `values`: top-level keys of the planned Helm values, with the digests of their values (see `value_digests`).
    - `on_delete`: StatefulSets with that update strategy whose pods a later stage replaces: until then old pods count as updated.
    """

    name: str
    namespace: str
    version: str
    owner: Owner = Owner.HELM_CONTROLLER
    home: str = "kube-system"
    revision: str = ""
    repo: str = ""
    chart: str = ""
    project: str = ""
    server: str = ""
    workloads: int = 1
    spare: int = 0
    by_quorum: tuple[str, ...] = ()
    values: dict[str, str] = {}
    on_delete: tuple[str, ...] = ()


def value_digests(values: Mapping[str, Any]) -> dict[str, str]:
    """Return top-level key → digest (12 hex digits) of Helm values, so that two sets can be compared without carrying them.

    Helm stores values as JSON made by Go: a float without fraction is an integer there, and a null removes a chart's default.
    """
    return {
        key: digest(_as_stored(value)).removeprefix("sha256:")[:12] for key, value in sorted(values.items()) if value is not None
    }


def _as_stored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_stored(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [_as_stored(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RootApplication(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of a gate on a stage's root Application, whose children are the stage's releases.

    `home` is its namespace and that of its children. `path` is the stage's folder in the repository `repo` at `revision` (tag or
    commit). `tree` is the digest of the tree published there. `project` is its AppProject and `server` its cluster, empty for any.
    """

    name: str
    home: str
    repo: str
    path: str
    revision: str
    tree: str = ""
    project: str = ""
    server: str = ""


class Chart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a HelmChart. `managed`: helm-controller has claimed it; `opted_out`: it is annotated as unmanaged.

    `changed` is when its spec or that of its HelmChartConfig was last written, in seconds since the epoch by the API server's
    clock, 0 if unknown. `failed` is `reason: message` of condition Failed=True.
    """

    version: str = ""
    managed: bool = False
    opted_out: bool = False
    changed: float = 0.0
    failed: str = ""


class InstallJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of the Job `helm-install-NAME`. `created` and `completed` are in seconds since the epoch, `completed` 0 if unknown.

    `log` and `events` are read until it is complete.
    """

    uid: str
    created: float
    completed: float = 0.0
    config_hash: str = ""
    complete: bool = False
    failed: str = ""
    log: str = ""
    events: tuple[str, ...] = ()


class Revision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest stored revision of a release (Secret `sh.helm.release.v1.NAME.vN`).

    `chart_version` is empty if unreadable. `description` is Helm's last message. It has the error of a failed install, whose pod
    and log are gone by then. `deployed` is when Helm deployed it, in seconds since the epoch, 0 if unknown. `manager` is the client
    that wrote the Secret last. `values` are the top-level keys of its Helm values, and whether each has the planned value; None if
    they cannot be read. The values themselves are left out, because they may hold secrets.
    """

    number: int
    status: str
    chart_version: str = ""
    description: str = ""
    deployed: float = 0.0
    manager: str = ""
    values: dict[str, bool] | None = None


class Workload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a Deployment, StatefulSet or DaemonSet, counted in pods. `image` is that of its first container."""

    kind: str
    name: str
    desired: int
    updated: int = 0
    ready: int = 0
    generation: int = 0
    observed: int = 0
    image: str = ""

    @property
    def current(self) -> bool:
        """Return True if the counts are about the newest spec, observed by the controller. False if no generation is known."""
        return self.observed >= self.generation > 0

    def settled(self, spare: int = 0) -> bool:
        """Return True if all desired pods but `spare` run the newest spec and are ready. `spare` applies to DaemonSets only."""
        # nodes set aside by the quorum still count as desired, and their pods may never become ready
        least = self.desired - (spare if self.kind == "DaemonSet" else 0)
        return self.current and self.desired > 0 and self.updated >= least and self.ready >= max(least, 1)


class Trouble(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The reason why a pod is not ready: a container's waiting or last termination reason, or a scheduling failure."""

    pod: str
    reason: str
    message: str = ""
    container: str = ""
    node: str = ""


class AppCondition(Struct, frozen=True, kw_only=True):
    """A condition of an Argo CD Application's status. Argo CD sets conditions only for errors and warnings."""

    type: str
    message: str = ""


class FailedResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A resource that failed in an Application's last sync. `hook_phase` is set for hooks."""

    kind: str
    name: str
    status: str = ""
    message: str = ""
    hook_phase: str = ""


class UnhealthyResource(Struct, frozen=True, kw_only=True):
    """A resource of an Application whose health Argo CD does not call Healthy. `kind` is GROUP/KIND, or KIND alone."""

    kind: str
    name: str
    health: str


class Application(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of an Argo CD Application. Times are seconds since the epoch; revisions are in the order of its sources.

    `version`, `chart` and `chart_repo` are those of its first chart; `revision`, `repo` and `path` those of its first source in
    Git. `server` is the address or the name of the cluster that it writes to, into `namespace`. `children` are the Applications
    among its resources that the controller has compared. `unhealthy` is None if Argo CD keeps no health of single resources.
    `paused`: an annotation tells Argo CD not to reconcile it.
    """

    project: str = ""
    server: str = ""
    namespace: str = ""
    chart: str = ""
    chart_repo: str = ""
    version: str = ""
    revision: str = ""
    repo: str = ""
    path: str = ""
    children: tuple[str, ...] = ()
    changed: float = 0.0
    reconciled: float = 0.0
    paused: bool = False
    sync: str = ""
    health: str = ""
    unhealthy: tuple[UnhealthyResource, ...] | None = None
    phase: str = ""
    message: str = ""
    revisions: tuple[str, ...] = ()
    synced_revisions: tuple[str, ...] = ()
    conditions: tuple[AppCondition, ...] = ()
    failures: tuple[FailedResource, ...] = ()


class RootState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a stage's root Application, and the Git `commit` that was delivered for its revision; empty if unknown."""

    application: Application | None = None
    commit: str = ""


class ReleaseState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of one release in the cluster. Objects that do not exist are None or empty.

    `by_helm` are workloads of an Argo CD Application that Helm has taken over (`KIND NAME`): Argo CD itself keeps no Helm release.
    """

    name: str
    chart: Chart | None = None
    job: InstallJob | None = None
    newest: Revision | None = None
    application: Application | None = None
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
    by_helm: tuple[str, ...] = ()


class Crd(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """State of a CustomResourceDefinition. `established`: the API server serves it."""

    name: str
    established: bool = False
    message: str = ""


class ChartsObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of a stage's charts: Helm releases, root Application, and the CRDs that the charts install."""

    releases: tuple[ReleaseState, ...] = ()
    root_app: RootState | None = None
    crds: tuple[Crd, ...] = ()


class ChartsExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of a stage's charts: Helm releases, root Application, and the CRDs that the API server must serve."""

    releases: tuple[Release, ...] = ()
    root_app: RootApplication | None = None
    crds: tuple[str, ...] = ()
