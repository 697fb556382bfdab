"""Contents of a live factory that its spec lacks: objects of any kind, and images of a registry stand-in; about 2 CPU seconds."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from steps.clients.kube.client import Kube
from tests.unit.factories.conftest import STARTER
from workflows.app.factories import cluster_origins, factory_pipeline, registry_listing, unplanned_contents, unplanned_objects
from workflows.app.factories.cluster_origins import ClusterObject
from workflows.app.factories.registry_listing import NotListed
from workflows.app.factories.registry_push import RegistryEndpoint
from workflows.app.factories.unplanned_contents import UnplannedContents
from workflows.plan.model import Plan
from workflows.rehearsal.apiserver.emulated_server import serve_in_thread
from workflows.rehearsal.simulator.api.api_kinds import definitions
from workflows.spec import FactorySpec, load_factory
from workflows.spec.pipelines.factory_spec import BuilderImage

RBAC = "rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module")
def plan(factory_file: Path, whole: FactorySpec) -> Plan:
    """The plan of a factory with a share and a pipeline."""
    return factory_pipeline.plan_of(factory_file, whole)


@pytest.fixture
def built(plan: Plan, tmp_path: Path) -> Iterator[Kube]:
    """A live factory with every object of its plan that is none of a chart, and what Kubernetes makes by itself."""
    with serve_in_thread() as server:
        path = tmp_path / "kubeconfig"
        path.write_text(server.kubeconfig)
        kube = Kube.from_file(path)
        for definition in definitions("argoproj.io", "Workflow", "WorkflowTemplate", "CronWorkflow"):
            kube.create(definition)
        for item in unplanned_objects.planned_objects(plan):
            if item["kind"] != "HelmChart":
                kube.apply(item)
        for name in ("default", "kube-system", "kube-public"):
            kube.apply(made("Namespace", name, ""))
        kube.create(made("ConfigMap", "kube-root-ca.crt", "software", data={"ca.crt": "x"}))
        yield kube


def made(kind: str, name: str, namespace: str = "software", api: str = "v1", **rest: Any) -> dict[str, Any]:
    """Return an object as somebody would write it."""
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, **({"namespace": namespace} if namespace else {})}, **rest}


def lost(spec: FactorySpec, plan: Plan, kube: Kube) -> list[str]:
    """Return resource and name of what a rebuild loses, `*` for what is changed."""
    comparison = unplanned_objects.compare(spec, plan, kube)
    assert comparison.uncompared == (unplanned_objects.NODE_MARKS,)
    return sorted(f"{item.resource} {item.namespace}/{item.name}{'*' if item.is_changed else ''}" for item in comparison.objects)


def test_a_factory_as_it_was_built_has_nothing_of_its_own(whole: FactorySpec, plan: Plan, built: Kube) -> None:
    built.merge("/apis/argoproj.io/v1alpha1/namespaces/software/cronworkflows/science", {"spec": {"suspend": True}})
    assert lost(whole, plan, built) == []


def test_objects_of_any_kind_are_seen(whole: FactorySpec, plan: Plan, built: Kube) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1", "controller": True}
    subject = {"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "developer"}
    own = [
        made("PersistentVolumeClaim", "data", spec={"accessModes": ["ReadWriteOnce"]}),
        made("ConfigMap", "settings", data={"a": "b"}),
        made("Secret", "token", stringData={"a": "b"}),
        made("RoleBinding", "ada", api=RBAC, roleRef=ref, subjects=[subject]),
        made("ConfigMap", "elsewhere", "default", data={}),
        made("Namespace", "team-two", ""),
    ]
    own.append(made("ConfigMap", "of-a-second-release"))
    own[-1]["metadata"]["annotations"] = helm("argo-workflows", "software")
    others = [made("ConfigMap", "of-the-chart"), made("ConfigMap", "of-a-pod")]
    others[0]["metadata"]["annotations"] = helm("argo-workflows", "argo")
    others[1]["metadata"]["ownerReferences"] = [owner]
    for item in (*own, *others):
        built.create(item)
    # the label of bringup's objects makes nobody's template a part of the spec
    former = made("WorkflowTemplate", "former", api="argoproj.io/v1alpha1", spec={})
    former["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "bringup"}
    built.create(former)
    assert lost(whole, plan, built) == [
        "configmaps default/elsewhere",
        "configmaps software/of-a-second-release",
        "configmaps software/settings",
        "namespaces /team-two",
        "persistentvolumeclaims software/data",
        "rolebindings software/ada",
        "secrets software/token",
        "workflowtemplates software/former",
    ]


def test_objects_of_the_spec_that_somebody_changed_are_seen(whole: FactorySpec, plan: Plan, built: Kube) -> None:
    argo, rbac = "/apis/argoproj.io/v1alpha1/namespaces/software", f"/apis/{RBAC}/namespaces/software"
    built.merge(f"{argo}/workflowtemplates/science", {"spec": {"activeDeadlineSeconds": 5}})
    built.merge(f"{argo}/cronworkflows/science", {"spec": {"schedules": ["* * * * *"], "suspend": True}})
    built.merge(f"{rbac}/roles/developer", {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    assert lost(whole, plan, built) == [
        "cronworkflows software/science*",
        "roles software/developer*",
        "workflowtemplates software/science*",
    ]


def test_objects_without_a_namespace_are_seen(whole: FactorySpec, plan: Plan, built: Kube) -> None:
    rule = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "auditor"}
    nfs = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteMany"], "nfs": {"server": "nas", "path": "/srv"}}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    names = {"plural": "quotas", "kind": "Quota"}
    spec = {"group": "example.org", "scope": "Cluster", "names": names, "versions": [version]}
    # the plural of a resource that kubelets keep, in a group of somebody's own
    named = {**spec, "names": {"plural": "nodes", "kind": "RackNode"}}
    own = [
        made("ClusterRole", "auditor", "", api=RBAC, rules=[rule]),
        made("ClusterRoleBinding", "auditor", "", api=RBAC, roleRef=ref),
        made("StorageClass", "fast", "", api="storage.k8s.io/v1", provisioner="csi.example.org"),
        made("PersistentVolume", "projects", "", spec=nfs),
        made("PriorityClass", "urgent", "", api="scheduling.k8s.io/v1", value=9),
        made("CustomResourceDefinition", "quotas.example.org", "", api="apiextensions.k8s.io/v1", spec=spec),
        made("CustomResourceDefinition", "nodes.example.org", "", api="apiextensions.k8s.io/v1", spec=named),
        made("Quota", "team", "", api="example.org/v1"),
        made("RackNode", "rack1", "", api="example.org/v1"),
        made("ValidatingWebhookConfiguration", "audit", "", api="admissionregistration.k8s.io/v1"),
        made("IngressClass", "own", "", api="networking.k8s.io/v1"),
    ]
    for item in own:
        built.create(item)
    built.merge("/apis/scheduling.k8s.io/v1/priorityclasses/project-software", {"description": "changed"})
    assert lost(whole, plan, built) == [
        "clusterrolebindings /auditor",
        "clusterroles /auditor",
        "customresourcedefinitions /nodes.example.org",
        "customresourcedefinitions /quotas.example.org",
        "ingressclasses /own",
        "nodes /rack1",
        "persistentvolumes /projects",
        "priorityclasses /project-software*",
        "priorityclasses /urgent",
        "quotas /team",
        "storageclasses /fast",
        "validatingwebhookconfigurations /audit",
    ]


RESOURCE_GROUPS = {
    "clusterrolebindings": "rbac.authorization.k8s.io",
    "clusterroles": "rbac.authorization.k8s.io",
    "nodes": "",
    "persistentvolumes": "",
    "servicecidrs": "networking.k8s.io",
    "tigerastatuses": "operator.tigera.io",
    **dict.fromkeys(("globalnetworkpolicies", "ipamblocks", "ippools", "tiers"), "crd.projectcalico.org"),
}


def cluster_object(resource: str, name: str = "x", spec: Any = None, group: str | None = None, **meta: Any) -> ClusterObject:
    """Return an object as the rules of origins look at it.

    Its factory has release `argo-workflows` in namespace `argo`, the HelmChart of it in `kube-system`, and claim `software/data`.
    """
    return ClusterObject(
        group=RESOURCE_GROUPS.get(resource, "other.k8s.io") if group is None else group,
        resource=resource,
        content={"metadata": {"name": name, **meta}, "spec": spec or {}},
        releases={("argo", "argo-workflows")},
        charts={("kube-system", "argo-workflows")},
        claims={("software", "data")},
    )


def helm(release: str, space: str) -> dict[str, str]:
    return {"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": space}


def owner(kind: str, name: str, space: str = "kube-system") -> dict[str, str]:
    mark = "objectset.rio.cattle.io/owner"
    return {f"{mark}-gvk": kind, f"{mark}-name": name, f"{mark}-namespace": space}


def by(*managers: str) -> list[dict[str, str]]:
    return [{"manager": manager} for manager in managers]


def volume(name: str, policy: str = "Retain", provisioner: str = "rancher.io/local-path", **spec: Any) -> ClusterObject:
    marks = {"pv.kubernetes.io/provisioned-by": provisioner} if provisioner else {}
    spec = {"persistentVolumeReclaimPolicy": policy, **spec}
    return cluster_object("persistentvolumes", name, spec, annotations=marks)


APF = "apf.kubernetes.io/autoupdate-spec"
BOOT = {"kubernetes.io/bootstrapping": "rbac-defaults"}
CHART, ADDON = "helm.cattle.io/v1, Kind=HelmChart", "k3s.cattle.io/v1, Kind=Addon"
PVC = "pvc-0a1b2c3d-0a1b-4c2d-8e3f-0a1b2c3d4e5f"
CLAIMED = {"claimRef": {"namespace": "software", "name": "data"}}
ORIGINS: list[tuple[ClusterObject, bool]] = [
    (cluster_object("clusterroles", "edit", labels=BOOT), True),
    (cluster_object("clusterroles", "edit", labels=BOOT, managedFields=by("kube-apiserver", "kubectl-edit")), True),
    (cluster_object("clusterroles", "edit"), False),
    # a copy of a default role has its label too
    (cluster_object("clusterroles", "site-view", labels=BOOT, managedFields=by("kubectl-client-side-apply")), False),
    (cluster_object("clusterroles", "site-view", labels=BOOT), False),
    (cluster_object("clusterroles", "system:site-node", labels=BOOT, managedFields=by("kubectl-create")), False),
    (cluster_object("clusterroles", "system:node", labels=BOOT, managedFields=by("kube-apiserver")), True),
    (cluster_object("clusterroles", "system:node", labels=BOOT, managedFields=by("kube-apiserver", "kubectl-edit")), True),
    (cluster_object("clusterroles", "system:node", labels=BOOT), True),
    (cluster_object("clusterroles", "new-default", labels=BOOT, managedFields=by("kube-apiserver")), True),
    (cluster_object("clusterrolebindings", "system:ci-admins", managedFields=by("kubectl-create")), False),
    (cluster_object("clusterrolebindings", "system:ci-admins"), False),
    (cluster_object("clusterrolebindings", "system:k3s-controller"), True),
    (cluster_object("clusterroles", "system:coredns", annotations=helm("rke2-coredns", "kube-system")), True),
    (cluster_object("storageclasses", "system:coredns"), False),
    (cluster_object("clusterrolebindings", "kube-apiserver-kubelet-admin"), True),
    (cluster_object("priorityclasses", "system-node-critical"), True),
    (cluster_object("flowschemas", annotations={APF: "true"}), True),
    (cluster_object("flowschemas", annotations={APF: "false"}), False),
    (cluster_object("apiservices", labels={"kube-aggregator.kubernetes.io/automanaged": "onstart"}), True),
    (cluster_object("ingressclasses", "nginx", annotations=helm("rke2-ingress-nginx", "kube-system")), True),
    (cluster_object("ingressclasses", "nginx", annotations=helm("rke2-ingress-nginx", "team")), False),
    (cluster_object("clusterroles", annotations=helm("rke2-monitoring", "kube-system")), False),
    (cluster_object("clusterroles", annotations=helm("argo-workflows", "argo")), True),
    (cluster_object("clusterroles", annotations=helm("argo-workflows", "team-a")), False),
    (cluster_object("clusterroles", annotations=helm("grafana", "grafana")), False),
    (cluster_object("clusterrolebindings", annotations=owner(CHART, "argo-workflows")), True),
    (cluster_object("clusterrolebindings", annotations=owner(CHART, "argo-workflows", "team-a")), False),
    (cluster_object("clusterrolebindings", annotations=owner(CHART, "grafana")), False),
    (cluster_object("clusterrolebindings", annotations=owner(CHART, "rke2-canal")), True),
    (cluster_object("clusterrolebindings", annotations=owner(CHART, "rke2-monitoring")), False),
    (cluster_object("runtimeclasses", annotations=owner(ADDON, "rke2-runtimeclasses")), True),
    (cluster_object("runtimeclasses", annotations=owner(ADDON, "own-manifest")), False),
    (cluster_object("runtimeclasses", annotations=owner(ADDON, "rke2-own-manifest")), False),
    (cluster_object("customresourcedefinitions", "helmcharts.helm.cattle.io", {"group": "helm.cattle.io"}), True),
    (cluster_object("customresourcedefinitions", "installations.operator.tigera.io", {"group": "operator.tigera.io"}), True),
    (cluster_object("customresourcedefinitions", "workflows.argoproj.io", {"group": "argoproj.io"}), True),
    (cluster_object("customresourcedefinitions", "rollouts.argoproj.io", {"group": "argoproj.io"}), False),
    (cluster_object("nodes"), True),
    (cluster_object("nodes", group="metrics.k8s.io"), True),
    (cluster_object("nodes", group="racks.example.org"), False),
    (cluster_object("ipaddresses", group="racks.example.org"), False),
    (cluster_object("ipaddresses", group="networking.k8s.io"), True),
    (cluster_object("ipamblocks"), True),
    (cluster_object("ipamblocks", group="racks.example.org"), False),
    (cluster_object("globalnetworkpolicies"), False),
    (cluster_object("globalnetworkpolicies", managedFields=by("kubectl-create")), False),
    (cluster_object("ippools", "default-ipv4-ippool"), True),
    (cluster_object("ippools", "own"), False),
    (cluster_object("tigerastatuses", "calico"), True),
    (cluster_object("tiers", "default"), True),
    (cluster_object("tiers", "platform", managedFields=by("kubectl-create")), False),
    (cluster_object("bgpconfigurations", "default", group="crd.projectcalico.org", managedFields=by("operator")), True),
    (cluster_object("clusterroles", "own", managedFields=by("operator")), False),
    (cluster_object("servicecidrs", "kubernetes"), True),
    (volume(PVC, **CLAIMED), True),
    (volume(PVC, provisioner="", **CLAIMED), False),
    (volume("by-hand", **CLAIMED), False),
    (volume(PVC), False),
    (volume(PVC, "Delete"), True),
    (volume("pvc-archive", "Delete", ""), False),
    (volume("pvc-archive", "Delete"), False),
    (cluster_object("volumesnapshotcontents", spec={"source": {"volumeHandle": "v"}}), True),
    (cluster_object("volumesnapshotcontents", spec={"source": {"snapshotHandle": "s"}}), False),
    (cluster_object("etcdsnapshotfiles", ownerReferences=[{"name": "x"}]), True),
    (cluster_object("csidrivers", managedFields=by("kube-apiserver")), True),
    (cluster_object("csidrivers", managedFields=by("kube-apiserver", "kubectl-edit")), False),
    (cluster_object("csidrivers", managedFields=[{"manager": "kubelet", "subresource": "status"}]), False),
]


@pytest.mark.parametrize(("item", "is_made_again"), ORIGINS)
def test_origins_of_objects_without_a_namespace(item: ClusterObject, is_made_again: bool) -> None:
    assert bool(cluster_origins.origin(item)) == is_made_again


class ListedRegistry(ThreadingHTTPServer):
    """Stand-in for a registry that answers from tables.

    `answers` maps the path and query of a GET to status, body and Link header, `digests` the path of a HEAD to status and digest.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _ListRequests)
        self.answers: dict[str, tuple[int, Any, str]] = {}
        self.digests: dict[str, tuple[int, str]] = {}

    @property
    def at(self) -> RegistryEndpoint:
        """Return where it is asked."""
        return RegistryEndpoint(url=f"http://127.0.0.1:{self.server_address[1]}")


class _ListRequests(BaseHTTPRequestHandler):
    server: ListedRegistry

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self.send_response(self.server.digests.get(self.path, (404, ""))[0])
        self.send_header("Docker-Content-Digest", self.server.digests.get(self.path, (404, ""))[1])
        self.end_headers()

    def do_GET(self) -> None:
        status, body, link = self.server.answers.get(self.path, (404, {}, ""))
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        if link:
            self.send_header("Link", link)
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def registry() -> Iterator[ListedRegistry]:
    with ListedRegistry() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_images_that_the_spec_does_not_push_are_listed(registry: ListedRegistry) -> None:
    first, second = "/v2/_catalog?n=500", "/v2/_catalog?n=500&last=bringup-check%2Fartefact"
    names = ["builders/spack", "bringup-check/artefact"]
    registry.answers = {
        first: (200, {"repositories": names}, f'<{second}>; rel="next"'),
        second: (200, {"repositories": ["team/app", "team/emptied", "../etc", "team/gone"]}, ""),
        "/v2/builders/spack/tags/list?n=500": (200, {"tags": ["0.23", "mine"]}, ""),
        "/v2/team/app/tags/list?n=500": (200, {"tags": ["1"]}, '<http://elsewhere.example.org/v2/>; rel="next"'),
        "/v2/team/emptied/tags/list?n=500": (200, {"tags": None}, ""),
    }
    pushed = BuilderImage(archive="builder.tar", name="builders/spack", tag="0.23")
    assert registry_listing.unplanned_images(registry.at, [pushed]) == ("builders/spack:mine", "team/app:1")


def test_images_whose_tags_somebody_moved_are_listed(registry: ListedRegistry) -> None:
    registry.digests = {"/v2/builders/spack/manifests/1": (200, "sha256:a"), "/v2/builders/eb/manifests/2": (200, "sha256:b")}
    pushed = {"builders/spack:1": "sha256:a", "builders/eb:2": "sha256:a", "builders/gone:3": "sha256:a"}
    assert registry_listing.overwritten_images(registry.at, pushed) == ("builders/eb:2",)
    registry.digests["/v2/builders/gone/manifests/3"] = (503, "")
    with pytest.raises(NotListed, match="answered 503"):
        registry_listing.overwritten_images(registry.at, pushed)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((401, {}, ""), "answered 401"),
        ((200, ["x"], ""), "no list of names"),
        ((200, {"repositories": [1]}, ""), "no list of names"),
    ],
)
def test_a_registry_that_does_not_list_is_not_compared(registry: ListedRegistry, answer: tuple[int, Any, str], why: str) -> None:
    registry.answers = {"/v2/_catalog?n=500": answer}
    with pytest.raises(NotListed, match=why):
        registry_listing.unplanned_images(registry.at, [])


def test_a_closed_port_is_not_compared(registry: ListedRegistry) -> None:
    registry.server_close()
    with pytest.raises(NotListed, match="does not answer"):
        registry_listing.unplanned_images(registry.at, [])


def test_a_factory_that_this_machine_does_not_know_is_not_compared(whole: FactorySpec) -> None:
    contents = unplanned_contents.read(STARTER, whole, None)
    assert (contents.sentences, len(contents.uncompared)) == ((), 1)


def test_what_the_site_restores_is_not_lost(factory_file: Path, built: Kube, registry: ListedRegistry, tmp_path: Path) -> None:
    for name in ("publish-key", "other"):
        built.create(made("Secret", name, stringData={"a": "b"}))
    registry.answers = {
        "/v2/_catalog?n=500": (200, {"repositories": ["cache/a", "team/app"]}, ""),
        "/v2/cache/a/tags/list?n=500": (200, {"tags": ["1"]}, ""),
        "/v2/team/app/tags/list?n=500": (200, {"tags": ["1"]}, ""),
    }
    patterns = "rebuild: {restored: [secrets/software/publish-*, images/cache/*]}\n"
    spec = load_factory(factory_file.read_text() + patterns)
    contents = unplanned_contents.read(factory_file, spec, tmp_path / "kubeconfig", registry.at)
    assert contents.uncompared == (unplanned_objects.NODE_MARKS,)
    assert contents.sentences == (
        "only in the cluster: secrets software/other; it is not saved, and not built again",
        "only in the registry: team/app:1 as it is now; it is not built again",
    )


def test_a_long_list_of_losses_is_counted() -> None:
    lines = UnplannedContents(images=tuple(f"team/app:{number}" for number in range(60))).sentences
    assert len(lines) == 51
    assert lines[-1] == "only in the factory: 10 more images"
