"""A schedule of a node image on the home cluster of `image_site`: its repository, and its pod as Argo would start it."""

import json
from dataclasses import dataclass

import yaml
from actors import pod_home, sources
from actors.image_site import SPACE, Argo
from actors.sources import Repository, Sources
from actors.step_pods import Ended, Object, Pods
from kubelab import box

from steps.contract.runs import revision
from tests.boot.pipeline.site import NAME
from workflows import image
from workflows.engines.argo import submission
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.argo.workflow_objects import Workflow
from workflows.render import from_git, rbac

GROUPS = {"rolebindings": rbac.RBAC, "roles": rbac.RBAC, "workflows": "argoproj.io", "cronworkflows": "argoproj.io"}
STARTER = f"image-{NAME}"
"""Name of what the schedule makes."""
PLACE = "nodes"
"""Folder of the spec in the repository."""


@dataclass(frozen=True)
class Schedule:
    """An installed schedule: what its CronWorkflow starts, as the template of one pod."""

    argo: Argo
    repository: Repository
    spec: Object
    template: Object

    def commit(self, revision: str) -> str:
        """Push the spec with another revision, and what it names; the commit."""
        folder = self.argo.site.folder
        text = yaml.safe_dump(self.spec | {"revision": revision})
        beside = {f"{PLACE}/{name}": (folder / name).read_text() for name in ("site.lock.json", "known_hosts")}
        return self.repository.commit({f"{PLACE}/image.yaml": text, **beside})

    def fire(self) -> Ended:
        """Run the pod to its end, as that of a Workflow that the schedule made."""
        cluster, made = self.argo.cluster, {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "spec": {}}
        if STARTER not in self.workflows():
            labels = {"bringup/starts": image.KIND, "bringup/cluster": NAME}
            path = f"/apis/argoproj.io/v1alpha1/namespaces/{SPACE}/workflows"
            cluster.plane.post(path, {**made, "metadata": {"name": STARTER, "namespace": SPACE, "labels": labels}})
        return Pods(cluster.plane, cluster.node, self.template, STARTER).start(from_git.ENTRYPOINT, {})

    def workflows(self) -> set[str]:
        """Names of all Workflows of home."""
        told = self.argo.cluster.plane.kubectl("-n", SPACE, "get", "workflows", "-o", "name")
        return {row.rpartition("/")[2] for row in told.split()}

    def forget(self) -> None:
        """Delete the Workflow that started the runs, as Argo does with old ones of a schedule; wait until what it owns is gone."""
        mine = {one.metadata.name for one in self.submitted()}
        self.argo.cluster.plane.kubectl("-n", SPACE, "delete", "workflow", STARTER)
        box.until(lambda: not mine & self.workflows(), f"{self.argo.cluster.plane.name}-manager")

    def submitted(self) -> tuple[Workflow, ...]:
        """The runs that it submitted, the oldest first; no controller runs here, so none of them ends."""
        home = Home(HomeAddress(kubeconfig=str(self.argo.cluster.plane.kubeconfig), namespace=SPACE))
        return tuple(
            one for one in submission.unfinished_runs(home, NAME, image.KIND) if self.source(one).path == f"{PLACE}/image.yaml"
        )

    def source(self, run: Workflow) -> revision.SpecSource:
        """Return the commit and path from which a run's spec was taken."""
        return revision.from_token(run.argument("source")) or revision.SpecSource(commit="", path="", dirty=True)

    def may(self, verb: str, resource: str) -> bool:
        """Return True if the account of the schedule's pod has a right in the namespace of the runs."""
        who, group = f"system:serviceaccount:{SPACE}:{from_git.account_name(NAME)}", GROUPS.get(resource, "")
        asked = {"namespace": SPACE, "verb": verb, "group": group, "resource": resource}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        body = review | {"spec": {"user": who, "resourceAttributes": asked}}
        allowed: bool = self.argo.cluster.plane.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", body)["status"][
            "allowed"
        ]
        return allowed


def install(argo: Argo, served: Sources) -> Schedule:
    """Install a schedule as its user does: create the Secrets that the spec names, and apply the rendered objects."""
    site, plane = argo.site, argo.cluster.plane
    repository = served.repository("site")
    held = {
        "site-git": {"token": f"{sources.USER}:{sources.PASSWORD}", "ca": served.certificate.read_text()},
        "site-boot": {"key": (site.folder / "ssh/key").read_text()},
    }
    meta = {"apiVersion": "v1", "kind": "Secret"}
    pod_home.apply(
        plane, *({**meta, "metadata": {"name": name, "namespace": SPACE}, "stringData": data} for name, data in held.items())
    )
    spec = yaml.safe_load((site.folder / "image.yaml").read_text())
    spec["publish"]["ssh"]["key"] = {"secret": {"name": "site-boot", "key": "key"}}
    opened = {"credentials": {"name": "site-git", "key": "token"}, "ca": {"name": "site-git", "key": "ca"}}
    spec["schedule"] = {"cron": "0 2 * * *", "source": {"repository": repository.url, "path": f"{PLACE}/image.yaml", **opened}}
    (site.folder / "scheduled.yaml").write_text(yaml.safe_dump(spec))
    site.run("render", "scheduled.yaml", "--namespace", SPACE, "--out", "scheduled")
    for name in ("rbac", "starts"):
        plane.kubectl("apply", "--server-side", "-f", str(site.folder / f"scheduled/{name}.yaml"))
    cron = json.loads(plane.kubectl("-n", SPACE, "get", "cronworkflow", f"image-{NAME}", "-o", "json"))
    name = cron["spec"]["workflowSpec"]["workflowTemplateRef"]["name"]
    starter = json.loads(plane.kubectl("-n", SPACE, "get", "workflowtemplate", name, "-o", "json"))
    template = {"metadata": {"name": cron["metadata"]["name"], "namespace": SPACE}, "spec": starter["spec"]}
    return Schedule(argo, repository, spec, template)
