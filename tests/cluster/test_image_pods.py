"""Real pods on the real kubelet build a node image, as `bringup image build --engine argo` submits it: the bytes of a build here.

The Workflow lies on a real API server with Argo's definitions; the pods are those of its template, made by a stand-in for Argo.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from actors import argo_home, image_schedule, image_site, pod_home, sources
from actors.cable import cable
from actors.image_site import LEVEL, SPACE, USER, Argo, Played
from actors.step_pods import Ended
from kubelab import box, custom_kinds
from kubelab.lab import Cluster

from steps.clients.store import Store
from steps.nodeimage.contract.image_manifest import OCI, PARTS
from tests.boot.pipeline.site import digests
from tests.boot.published import ssh_server
from workflows.render.building import CAPABILITIES

pytestmark = pytest.mark.sampled("parts of a real cluster")

UNTIL = ("--until", "image_sandbox")


class Made(NamedTuple):
    """Image that both pods and this machine have built: the played run, digests of the local build's files, and the image's key."""

    argo: Argo
    there: Played
    here: dict[str, str]
    key: str

    @property
    def pods(self) -> list[Ended]:
        """All pods of the run."""
        return self.there.pods.ended


@pytest.fixture(scope="module")
def argo(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Argo]:
    """A home cluster with both images on its node, and a boot server that its pods reach by SSH."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "ssh").mkdir()
    custom_kinds.install(cluster.plane, argo_home.CRDS)
    for words in ((), ("--builder",)):
        print(f"image {pod_home.load_image(cluster.node, folder / 'home', *words)}")
    with ssh_server.running(folder / "ssh") as server, cable("127.0.0.1", server.port, at=box.OUTSIDE) as laid:
        key = (folder / "ssh/host.pub").read_text()
        (folder / "known_hosts").write_text(f"[{box.OUTSIDE}]:{laid.port} {key}")
        yield image_site.make(
            cluster,
            folder,
            {"host": box.OUTSIDE, "port": laid.port, "key": {"file": "./ssh/key"}, "known_hosts": "./known_hosts"},
        )
    image_site.remove(cluster)
    cluster.plane.kubectl("delete", "-f", str(argo_home.CRDS), "--timeout=60s")


@pytest.fixture(scope="module")
def made(argo: Argo) -> Made:
    """Each from nothing but the locked packages."""
    there = argo.build(*UNTIL)
    for ended in there.pods.ended:
        print(f"{ended.verb:8} {ended.template:32} {ended.exit_code} {dict(ended.outputs)} {ended.message}")
    assert not _failed(there)
    argo.site.run("image", "build", *UNTIL)
    (packed,) = (argo.site.images / "assembled").glob("*/manifest.json")
    return Made(argo, there, digests(packed.parent), packed.parent.name)


def test_pods_build_what_this_machine_builds(made: Made) -> None:
    assert (made.there.run.phase, made.there.run.message) == ("Succeeded", "")
    assert made.argo.packed(made.key) == made.here
    (record,) = Store(made.argo.store).records(made.there.pods.run, "image_layers", "layer_base")
    (here,) = made.argo.site.records("image_layers", "layer_base")
    assert "cached" not in record.observation
    assert record.observation["digest"] == here["observation"]["digest"]


def test_a_container_runs_in_the_root_of_the_image(made: Made, cluster: Cluster, tmp_path: Path) -> None:
    """The kubelet's own containerd takes `root.oci.tar` as it is."""
    archive = Path(shutil.copy(made.argo.site.images / "assembled" / made.key / OCI, tmp_path))
    before = set(cluster.node.images())
    cluster.node.load(archive)
    (name,) = [one for one in cluster.node.images() if one not in before and not one.startswith("sha256:")]
    command = ["sh", "-ec", ". /etc/os-release; dpkg --audit; echo $VERSION_CODENAME $(id -un) $(ls /boot | wc -l); exec true"]
    container = {"name": "root", "image": name, "imagePullPolicy": "Never", "command": command}
    pod = {"metadata": {"name": "in-the-root", "namespace": SPACE}, "spec": {"containers": [container], "restartPolicy": "Never"}}
    plane = cluster.plane
    plane.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Pod", **pod}))
    plane.kubectl("-n", SPACE, "wait", "pod/in-the-root", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=120s")
    assert plane.kubectl("-n", SPACE, "logs", "in-the-root").split() == ["bookworm", "root", "0"]
    plane.kubectl("-n", SPACE, "delete", "pod/in-the-root", "--wait=false")


def test_only_pods_that_build_are_root(made: Made) -> None:
    for ended in made.pods:
        builds = ended.verb == "build"
        process, linux = ended.runtime["process"], ended.runtime["linux"]
        allowed = {f"CAP_{name}" for name in CAPABILITIES} if builds else set()
        assert process["user"]["uid"] == (0 if builds else USER), ended.template
        assert set(process.get("capabilities", {}).get("bounding") or ()) == allowed, ended.template
        assert not process.get("apparmorProfile")
        assert (linux.get("seccomp") or {}).get("defaultAction") == (None if builds else "SCMP_ACT_ERRNO"), ended.template
        assert ended.runtime["root"]["readonly"]
        assert _image(ended) == ("bringup-builder" if builds else "bringup-steps")
    assert {one.verb for one in made.pods} == {"open", "build", "judge", "report", "seal"}


def test_what_builders_record_belongs_to_the_steps(made: Made) -> None:
    kept = [made.argo.store / "runs", *(made.argo.store / "runs").rglob("*")]
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in kept} == {(USER, USER)}


def test_a_namespace_at_the_restricted_level_refuses_builders(cluster: Cluster, made: Made) -> None:
    plane, (built, *_) = cluster.plane, [one for one in made.pods if one.verb == "build"]
    spec = {key: built.pod["spec"][key] for key in ("securityContext", "containers", "volumes", "restartPolicy")}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "refused-", "namespace": SPACE}, "spec": spec}
    plane.kubectl("label", "namespace", SPACE, f"{LEVEL}=restricted", "--overwrite")
    try:
        with pytest.raises(subprocess.CalledProcessError) as refused:
            plane.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    finally:
        plane.kubectl("label", "namespace", SPACE, f"{LEVEL}=privileged", "--overwrite")
    assert 'violates PodSecurity "restricted' in refused.value.stderr


def test_a_schedules_pod_submits_what_git_says_now_and_nothing_twice(argo: Argo, cluster: Cluster, tmp_path: Path) -> None:
    """Over HTTPS with a password and a CA of its own; with the rights of its account alone, and by its own token."""
    with sources.serve(tmp_path) as served:
        schedule = image_schedule.install(argo, served)
        first = schedule.commit("1")
        begun, again = schedule.fire(), schedule.fire()
        newer = schedule.commit("2")
        after = schedule.fire()
    for ended in (begun, again, after):
        assert ended.exit_code == 0, ended.log
        assert _image(ended) == "bringup-builder"
        process = ended.runtime["process"]
        assert (process["user"]["uid"], process.get("capabilities", {}).get("bounding") or []) == (USER, [])
        assert sources.PASSWORD not in ended.log
    older, latest = schedule.submitted()
    assert f"run {older.metadata.name} builds exactly this" in again.log
    assert f"{older.metadata.name} is superseded" in after.log
    assert (older.spec.shutdown, latest.spec.shutdown) == ("Terminate", "")
    assert [source.commit for source in map(schedule.source, (older, latest))] == [first, newer]
    assert schedule.may("create", "workflows")
    refused = [("create", "rolebindings"), ("patch", "roles"), ("patch", "cronworkflows"), ("get", "secrets"), ("create", "pods")]
    refused += [("patch", "secrets"), ("delete", "workflows")]
    assert [one for one in refused if schedule.may(*one)] == []
    schedule.forget()


@pytest.mark.long
def test_pods_boot_and_publish_an_image(made: Made) -> None:
    """Emulated machines in pods, with both firmwares; what is published is what was built before."""
    there = made.argo.build()
    for ended in there.pods.ended:
        print(f"{ended.verb:8} {ended.template:32} {ended.exit_code} {dict(ended.outputs)} {ended.message}")
    assert not _failed(there)
    assert there.run.phase == "Succeeded"
    published = made.argo.site.published()
    assert {name: published[name] for name in PARTS} == {name: made.here[name] for name in PARTS}


def _failed(there: Played) -> dict[str, str]:
    """Return the logs of pods that failed, by template."""
    return {one.template: one.log for one in there.pods.ended if one.exit_code}


def _image(ended: Ended) -> str:
    return str(Path(ended.pod["spec"]["containers"][0]["image"]).name.partition(":")[0])
