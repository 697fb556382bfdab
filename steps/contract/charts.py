"""Charts: what is expected of one Helm release, and what the cluster shows of it (gpu_stack §5, §6)."""

from enum import StrEnum

from msgspec import Struct


class Owner(StrEnum):
    """Who installs a release. Exactly one: two owners fight over it (design §6)."""

    HELM_CONTROLLER = "helm_controller"
    ARGO_CD = "argo_cd"


class Release(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a gate expects of one release.

    `namespace` is where its objects go, `version` the pinned chart version. `workloads` is the least number of Deployments,
    StatefulSets and DaemonSets that it must bring (0 for a chart of CRDs only). `spare` is how many nodes a DaemonSet may be
    short of: the fleet minus the quorum, because nodes set aside still count as desired there. `home` is where the owner's own
    object lies: `kube-system` for HelmCharts, Argo CD's namespace for Applications; `revision` is the Git revision that an
    Application takes its values from; `repo` and `chart` say where it takes the chart from, `project` and `server` its AppProject
    and the cluster that it writes to. What is empty is not compared. `by_quorum` are kinds (GROUP/KIND) that count nodes, which the
    stage's own gates judge by the quorum: Argo CD calls them Progressing for as long as one node is short, and with them the
    Application. Empty where all has to be Healthy.
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


class RootApplication(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a gate expects of a stage's root Application, whose children are the stage's releases.

    `home` is its namespace, and that of its children; `path` is the folder of the stage in the repository `repo` at `revision` (a
    tag or a commit); `tree` is the digest of the tree that was published there; `project` is its AppProject and `server` its
    cluster, empty for any.
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
    """A HelmChart. `managed`: helm-controller has claimed it; `opted_out`: it is told not to.

    `changed` is when its spec (or that of its HelmChartConfig) was last written, in seconds since the epoch of the API server's
    clock, 0 where not known; `failed` is `reason: message` of condition Failed=True.
    """

    version: str = ""
    managed: bool = False
    opted_out: bool = False
    changed: float = 0.0
    failed: str = ""


class InstallJob(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Job `helm-install-NAME`. `created` is in seconds since the epoch; `log` and `events` are read until it is complete."""

    uid: str
    created: float
    config_hash: str = ""
    complete: bool = False
    failed: str = ""
    log: str = ""
    events: tuple[str, ...] = ()


class Revision(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest stored revision of a release (Secret `sh.helm.release.v1.NAME.vN`). `chart_version` is empty where unreadable;
    `description` is Helm's last word, with the error of a failed install: the Job's pod and its log are gone by then."""

    number: int
    status: str
    chart_version: str = ""
    description: str = ""


class Workload(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A Deployment, StatefulSet or DaemonSet: what it wants and has, in pods. `image` is its first container's."""

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
        """Whether its controller has seen its newest spec, so that the counts are about that spec; no where neither is told."""
        return self.observed >= self.generation > 0

    def settled(self, spare: int = 0) -> bool:
        """Whether all wanted pods but `spare` run the newest spec and are ready; spare counts for DaemonSets only."""
        least = self.desired - (spare if self.kind == "DaemonSet" else 0)
        return self.current and self.desired > 0 and self.updated >= least and self.ready >= max(least, 1)


class Trouble(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a pod is not ready: a container's waiting or last termination reason, or why it cannot be scheduled."""

    pod: str
    reason: str
    message: str = ""
    container: str = ""
    node: str = ""


class AppCondition(Struct, frozen=True, kw_only=True):
    """One condition of an Argo CD Application, all of which are errors or warnings."""

    type: str
    message: str = ""


class FailedResource(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One resource of the last sync that failed. `hook_phase` is set for hooks."""

    kind: str
    name: str
    status: str = ""
    message: str = ""
    hook_phase: str = ""


class UnhealthyResource(Struct, frozen=True, kw_only=True):
    """One resource that Argo CD calls anything but Healthy; `kind` is GROUP/KIND, or KIND alone."""

    kind: str
    name: str
    health: str


class Application(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An Argo CD Application. Times are seconds since the epoch; revisions are in the order of its sources.

    `version`, `chart` and `chart_repo` are those of its first chart, `revision`, `repo` and `path` those of its first source in
    Git; `server` is the address or the name of the cluster that it writes to, into `namespace`. `children` are the Applications
    among its resources, as far as the controller has compared them. `unhealthy` is None where it keeps no health of resources.
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
    """What the cluster shows of a root Application, and the `commit` that was delivered for its revision; empty: nobody knows."""

    application: Application | None = None
    commit: str = ""


class ReleaseState(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the cluster shows of one release; what does not exist is None or empty."""

    name: str
    chart: Chart | None = None
    job: InstallJob | None = None
    newest: Revision | None = None
    application: Application | None = None
    workloads: tuple[Workload, ...] = ()
    trouble: tuple[Trouble, ...] = ()
