"""A factory's gates that use a part, on the real kubelet: a registry, a shared folder, the rights of developers, a Workflow.

The registry is CNCF distribution from Debian. Kubernetes binds the volumes and runs the check's pods as the stages render them. In
place of others act: dnsmasq for CoreDNS, one rule of iptables for kube-proxy, folders for the provisioner's volume and the NFS
server, and the simulator's Argo for the workflow-controller. About 35 CPU seconds.
"""

import base64
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from actors import nfs_client, pod_home, registry_image, service_names
from actors.steps_by_hand import RUN, Steps
from kubelab import box, images, node
from kubelab.lab import Cluster

from steps.clients.store import Store
from steps.contract.verdict import Status, Verdict
from workflows.app.factories import registry_push
from workflows.app.factories.registry_push import NotPushed
from workflows.plan.factory_plan import compile_factory
from workflows.rehearsal.simulated_cluster import ExistingServer, simulated_cluster, write_fleet
from workflows.rehearsal.simulator.world import load_roles
from workflows.spec import FactorySpec, load_factory
from workflows.spec.pipelines.factory_spec import (
    REGISTRY_CERTIFICATE,
    REGISTRY_HTPASSWD,
    REGISTRY_KEY,
    REGISTRY_PASSWORD,
    BuilderImage,
)

USER = 1000
"""User of the registry's pod."""
PORT = 30500
REGISTRY = {"image": registry_image.NAME, "size": "1Gi", "node_port": PORT}
CERTIFICATE, KEY = "registry.crt", "registry.key"
PASSWORD, HASH = "let-me-pull", "$2b$05$abcdefghijklmnopqrstuucCZeJdrAgCPNDV0D5WMVlxjAoEEY.vu"
"""A password and its bcrypt hash, as htpasswd prints it."""
SPEC = {
    "apiVersion": "bringup/v1",
    "kind": "Factory",
    "name": "one-node",
    "owner": "tests@example.org",
    "revision": "1",
    "hosts": {"control": {"role": "server", "ranges": node.NAME, "addresses": {"start": box.ADDRESS}}},
    "check_image": images.SHELL.name,
    "registry": REGISTRY,
    "share": {"server": "192.0.2.7", "path": "/srv/factory"},
    "projects": {"software": {"groups": ["developers"]}},
}
KINDS = {"workflows": "Workflow", "workflowtemplates": "WorkflowTemplate"}
CONTROLLER = "argo-workflows-workflow-controller"
STAGES = ("factory_storage", "factory_registry", "factory_projects", "factory_argo")
SPACES = ("registry", "software", "argo", "bringup-check")
PULLED = "an artefact was pushed from one node and pulled on 1 node, and each node ran a pushed image as {}"
IMAGE = f"{{}}:{PORT}/bringup-check/artefact:image"


@dataclass(frozen=True)
class FactoryNode:
    """The real node as a factory, and the run whose tasks are started by hand."""

    cluster: Cluster
    steps: Steps
    spec: FactorySpec

    def run(self, *tasks: str) -> None:
        """Run tasks of the plan, each to its end."""
        for task in tasks:
            done = self.steps.run(task)
            assert done.returncode == 0, done.stdout + done.stderr + self._state()

    def verdict(self, stage: str, task: str) -> Verdict:
        """Return the verdict of a task's only record."""
        (record,) = Store(self.steps.folder / "store").records(RUN, stage, task)
        assert record.verdict is not None
        return record.verdict

    def passes(self, stage: str, task: str) -> str:
        """Return the reason of a pass."""
        verdict = self.verdict(stage, task)
        assert verdict.status is Status.PASS, verdict
        return verdict.reason

    def _state(self) -> str:
        return self.cluster.plane.kubectl("get", "pods,events", "--all-namespaces")


@pytest.fixture(scope="module")
def made(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[FactoryNode]:
    """The node with the registry's image, its volume, an NFS client, and a name server for pods."""
    folder, plane = tmp_path_factory.mktemp("factory-parts"), cluster.plane
    registry_image.load(cluster.node, tmp_path_factory.mktemp("registry"))
    share, data = (_folder(cluster.node.folder / name) for name in ("share", "registry"))
    pod_home.apply(plane, _volume(data))
    with nfs_client.exporting(share), service_names.resolving(cluster):
        yield _begun(cluster, folder, SPEC)
        plane.kubectl("delete", "namespaces", *SPACES, "--ignore-not-found", "--timeout=90s")
    plane.kubectl("delete", "pv/registry-data", "pv/share-software", "priorityclass/project-software", "--ignore-not-found")


def _begun(cluster: Cluster, folder: Path, document: dict[str, Any], **secrets: str) -> FactoryNode:
    """Return a run of a spec's stages, which has been opened."""
    spec = load_factory(json.dumps(document) + "\n")
    steps = Steps(folder, compile_factory(spec, {}, only=STAGES), folder)
    steps.lay(secrets | {"kubeconfig": cluster.plane.kubeconfig.read_text()})
    factory = FactoryNode(cluster, steps, spec)
    factory.run("run.open")
    return factory


def _folder(path: Path) -> Path:
    """Return a new folder that the registry's user may write to."""
    path.mkdir()
    os.chown(path, USER, USER)
    return path


def _volume(folder: Path) -> pod_home.Object:
    """Return the volume that a provisioner would make for the registry's claim."""
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": "local-path",
        "hostPath": {"path": str(folder), "type": "Directory"},
        "claimRef": {"namespace": "registry", "name": "registry-data"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "registry-data"}, "spec": spec}


def _all(stage: str, tasks: Sequence[str]) -> tuple[str, ...]:
    return tuple(f"{stage}.{task}" for task in tasks)


def test_a_pod_pushes_to_a_real_registry_and_pulls_what_it_pushed(made: FactoryNode) -> None:
    made.run(*_all("factory_registry", ("apply", "control")))
    assert "registry:2.8 is ready, its volume is bound" in made.passes("factory_registry", "control")
    service_names.lead(made.cluster.plane, "registry", "registry")
    # kube-proxy would lead localhost to the pod too
    made.cluster.node.reach_registry(f"localhost:{PORT}", f'[host."http://{box.ADDRESS}:{PORT}"]\n')
    made.run(*_all("factory_registry", ("functional", "judge")))
    assert made.passes("factory_registry", "functional") == PULLED.format(IMAGE.format("localhost"))
    kept = made.cluster.node.folder / "registry/docker/registry/v2"
    assert (kept / "repositories/bringup-check/artefact/_manifests/tags/image").is_dir()


def test_a_registry_with_tls_and_a_login_takes_pushes_of_its_user_alone(made: FactoryNode, tmp_path: Path) -> None:
    """The certificate is its own CA. Pods of the check log in, as do a push from an admin's machine and the node's containerd."""
    begun = _begun(made.cluster, tmp_path / "run", SPEC | {"registry": _with_login(tmp_path)}, **_secrets(tmp_path))
    begun.run(*_all("factory_registry", ("secrets", "apply", "control")))
    service_names.lead(made.cluster.plane, "registry", "registry")
    _refuse_and_trust(made, begun, tmp_path)
    assert begun.passes("factory_registry", "functional") == PULLED.format(IMAGE.format(box.ADDRESS))

    image = BuilderImage(archive="image.tar", name="builders/pause", tag="1")
    archive, target = images.pack(images.PAUSE, tmp_path / image.archive), registry_push.endpoint(begun.spec, tmp_path, {})
    for stranger, refusal in ((replace(target, login=""), "answered 401"), (replace(target, authorities=()), "CERTIFICATE_VERIFY")):
        with pytest.raises(NotPushed, match=refusal):
            registry_push.push(stranger, archive, image)
    assert registry_push.push(target, archive, image).uploaded == 2

    name = f"{box.ADDRESS}:{PORT}"
    (hosts := tmp_path / "hosts" / name).mkdir(parents=True)
    # RKE2 makes such a file of registries.yaml
    (hosts / "hosts.toml").write_text(f'[host."https://{name}"]\nca = "{tmp_path / CERTIFICATE}"\n')
    made.cluster.node.pull(f"{name}/builders/pause:1", "--hosts-dir", str(hosts.parent), "--user", f"factory:{PASSWORD}")


def _refuse_and_trust(made: FactoryNode, begun: FactoryNode, folder: Path) -> None:
    """Run the check while the node does not know the registry's CA, which its pods would not notice; then with CA and login."""
    name = f"{box.ADDRESS}:{PORT}"
    begun.run("factory_registry.functional")
    refused = begun.verdict("factory_registry", "functional")
    assert refused.status is Status.FAIL, refused
    assert f"cannot pull {IMAGE.format(box.ADDRESS)}" in refused.reason
    assert "x509" in refused.reason
    login = base64.b64encode(f"factory:{PASSWORD}".encode()).decode()
    # RKE2 has the login in containerd's own configuration, which needs a restart
    host = f'[host."https://{name}"]\nca = "{folder / CERTIFICATE}"\n'
    made.cluster.node.reach_registry(name, f'{host}[host."https://{name}".header]\nAuthorization = "Basic {login}"\n')
    begun.run(*_all("factory_registry", ("functional", "judge")))


def _with_login(folder: Path) -> dict[str, object]:
    """Write the files of a registry with TLS and a login, and return its section of the spec."""
    made_by = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-subj",
        "/CN=registry",
    ]
    made_by += ["-addext", f"subjectAltName=IP:{box.ADDRESS}", "-keyout", KEY, "-out", CERTIFICATE]
    subprocess.run(made_by, cwd=folder, check=True, capture_output=True)
    (folder / "password").write_text(f"{PASSWORD}\n")
    login = {"username": "factory", "password": {"file": "password"}, "htpasswd": {"file": "htpasswd"}}
    tls = {"certificate": {"file": CERTIFICATE}, "key": {"file": KEY}, "ca": {"file": CERTIFICATE}, "name": box.ADDRESS}
    return {**REGISTRY, "tls": tls, "login": login}


def _secrets(folder: Path) -> dict[str, str]:
    """Return the secret files of a run whose registry has TLS and a login."""
    files = {REGISTRY_CERTIFICATE: CERTIFICATE, REGISTRY_KEY: KEY, REGISTRY_PASSWORD: "password"}
    return {name: (folder / file).read_text() for name, file in files.items()} | {REGISTRY_HTPASSWD: f"factory:{HASH}\n"}


def test_a_pod_writes_to_the_shared_folder_and_reads_what_it_wrote(made: FactoryNode) -> None:
    made.run(*_all("factory_storage", ("apply_software", "control", "functional", "judge")))
    assert made.passes("factory_storage", "control") == "the shared folder is bound in 1 project"
    assert made.passes("factory_storage", "functional") == "what one node wrote was read on 1 node"
    assert [path.name for path in (made.cluster.node.folder / "share").glob(".bringup-check-*")]


def test_developers_submit_and_do_nothing_else(made: FactoryNode) -> None:
    """The real authorizer and the real quota controller answer."""
    made.run(*_all("factory_projects", ("apply_software", "control", "access", "judge")))
    assert "developers of 1 project submit and read logs" in made.passes("factory_projects", "access")


def test_a_workflow_passes_an_answer_through_two_pods(made: FactoryNode, tmp_path: Path) -> None:
    """A stand-in for Argo's controller makes the pods of the check's Workflow, and refuses the one with a template of its own."""
    plane = made.cluster.plane
    names = [f"{plural}.argoproj.io" for plural in KINDS]
    pod_home.apply(plane, *map(_definition, KINDS, KINDS.values()), *_controller_objects())
    plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", *names)
    plane.until_served()
    plane.kubectl("-n", "argo", "rollout", "status", f"deployment/{CONTROLLER}", "--timeout=60s")
    off = tuple(role.name for role in load_roles() if role.name != "workflow_controller")
    existing = ExistingServer(kubeconfig=plane.kubeconfig, roles_off=off, speed=1.0)
    # the node's own kubelet renews its lease
    options = [*existing.arguments(), "--heartbeat", "3600"]
    with simulated_cluster(tmp_path, write_fleet(tmp_path, made.steps.plan), options, existing):
        made.run("factory_argo.functional")
    assert made.passes("factory_argo", "functional").startswith("a Workflow of 2 steps gave its answer, and one with")
    plane.kubectl("delete", "crd", *names, "--timeout=60s")


def _definition(plural: str, kind: str) -> pod_home.Object:
    """Return a definition of Argo's without its schema, as those in its folder `manifests/base/crds/minimal`.

    The full ones, against which other tests check, cost the API server 40 s of CPU.
    """
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    spec = {"group": "argoproj.io", "names": names, "scope": "Namespaced", "versions": [version]}
    meta = {"name": f"{plural}.argoproj.io"}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec}


def _controller_objects() -> list[pod_home.Object]:
    """Return what the chart of Argo Workflows installs and the stand-in looks for: a ready Deployment, and its settings."""
    meta, labels = {"name": CONTROLLER, "namespace": "argo"}, {"app": CONTROLLER}
    pod = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "controller", "image": images.PAUSE.name}]}
    template = {"metadata": {"labels": labels}, "spec": pod}
    settings = {"config": "workflowRestrictions: {templateReferencing: Strict}\n"}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "argo"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta | {"name": f"{CONTROLLER}-configmap"}, "data": settings},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta,
            "spec": {"selector": {"matchLabels": labels}, "template": template},
        },
    ]
