"""Installing into a home cluster: checks before anything is written, the installed objects, and a submission that happens once."""

import base64
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from steps.clients.kube.api import Http
from steps.contract.runs import revision
from steps.errors import Conflict
from tests.unit import small_image
from tests.unit.chained_pipeline import build
from tests.unit.engines.argo.lab import REAL, Lab, full_crd, lab, until
from tests.unit.engines.argo.test_streams import serving, write_access
from workflows import examples, image
from workflows.engines.argo import helper_pods, installer, prerequisites, submission
from workflows.engines.argo.home import Home
from workflows.engines.argo.home_address import HomeAddress
from workflows.engines.run_secrets import SecretMissing
from workflows.nodeimage.image_plan import compile_image
from workflows.render.bundle import render
from workflows.render.steps import Settings
from workflows.spec import load
from workflows.stages.host_access import SecretFile

Drill = Callable[..., Any]


@pytest.fixture
def bare(tmp_path: Path) -> Any:
    """A home cluster whose Deployments the test makes itself."""
    made = lab(tmp_path)
    made.prepare(controller="")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("quay.io/argoproj/workflow-controller:v4.1.2", "4.1.2"),
        ("registry.example.org:5000/argo/workflow-controller:v4.2.0-rc1@sha256:" + "0" * 64, "4.2.0"),
        ("mirror/argoproj-controller:5.0.1", "5.0.1"),  # the container's name tells
    ],
)
def test_a_new_enough_controller(bare: Lab, image: str, version: str) -> None:
    bare.deploy(image)
    assert prerequisites.check_argo_version(bare.home) == version


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("quay.io/argoproj/workflow-controller:v4.1.0", "has image quay.io/argoproj/workflow-controller:v4.1.0"),
        ("quay.io/argoproj/workflow-controller:v3.7.14", "Argo Workflows 4.1.2 or newer is needed"),
        ("quay.io/argoproj/workflow-controller:latest", "which names no version"),
        ("registry:5000/workflow-controller", "which names no version"),
        ("quay.io/argoproj/workflow-controller@sha256:" + "0" * 64, "which names no version"),
    ],
)
def test_what_cannot_be_shown_to_be_new_enough_is_refused(bare: Lab, image: str, words: str) -> None:
    bare.deploy(image)
    with pytest.raises(prerequisites.NoArgo, match=words):
        prerequisites.check_argo_version(bare.home)
    assert prerequisites.check_argo_version(bare.home, "v4.1.2") == "4.1.2"  # a person vouches for it
    with pytest.raises(prerequisites.NoArgo, match=r"--argo-version 4\.1"):
        prerequisites.check_argo_version(bare.home, "4.1")


@pytest.mark.skipif(bool(REAL), reason="takes CRDs from a server that other tests use")
def test_no_controller_and_no_crds(bare: Lab) -> None:
    with pytest.raises(prerequisites.NoArgo, match="no workflow-controller was found"):
        prerequisites.check_argo_version(bare.home)
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    bare.home.ask(lambda kube: kube.delete(f"{crds}/workflowtaskresults.argoproj.io"))
    with pytest.raises(prerequisites.NoArgo, match="does not serve workflowtaskresults"):
        prerequisites.check_argo_version(bare.home, "4.1.2")


def test_everything_is_installed_twice_without_harm(cluster: Lab, drill: Drill) -> None:
    plan, bundle = drill(cluster.where.namespace, cluster.target)
    home = cluster.home
    contents = prerequisites.collect_secrets(home, plan, Path("/"), {})
    assert prerequisites.check_prerequisites(home, bundle) == ()
    for _ in range(2):
        installer.install(home, plan, bundle, contents)
    projected = [volume["projected"]["sources"] for volume in bundle.template["spec"]["volumes"] if "projected" in volume]
    ((name,),) = {tuple(row["secret"]["name"] for row in sources) for sources in projected}
    secret = home.ask(lambda kube: kube.get(home.core("secrets", name), dict[str, Any]))
    assert base64.b64decode(secret["data"]["kubeconfig"]) == cluster.target.read_bytes()
    assert home.template(bundle.template["metadata"]["name"])["spec"]["entrypoint"] == "bringup"
    accounts = home.ask(lambda kube: kube.list(home.core("serviceaccounts"), dict[str, Any]))
    assert {"bringup-apply", "bringup-seal"} <= {one["metadata"]["name"] for one in accounts}


@pytest.mark.skipif(bool(REAL), reason="a real home cluster has the full CRDs in every test")
def test_the_full_crds_take_what_is_submitted(tmp_path: Path, drill: Drill) -> None:
    made = lab(tmp_path)
    try:
        made.prepare(crd=full_crd)
        plan, bundle = drill(made.where.namespace, made.target)
        installer.install(made.home, plan, bundle, {})
        assert submission.submit(made.home, submission.workflow("full", plan, bundle)).metadata.name == "full"
    finally:
        made.close()


def test_a_config_map_with_other_content_is_refused(cluster: Lab, drill: Drill) -> None:
    plan, bundle = drill(cluster.where.namespace, cluster.target)
    cluster.create({**bundle.config_maps[0], "data": {"somebody": "else"}})
    with pytest.raises(installer.NotReady, match="differs from this plan"):
        installer.install(cluster.home, plan, bundle, {})


def test_a_field_that_somebody_else_owns_is_a_conflict(cluster: Lab, drill: Drill) -> None:
    plan, bundle = drill(cluster.where.namespace, cluster.target)
    theirs = {**bundle.template, "spec": {**bundle.template["spec"], "entrypoint": "another"}}
    name, query = bundle.template["metadata"]["name"], {"fieldManager": "somebody", "force": "true"}
    path = f"/apis/argoproj.io/v1alpha1/namespaces/{cluster.where.namespace}/workflowtemplates/{name}"
    Http(cluster.home.access).request("PATCH", path, query=query, body=theirs, content_type="application/apply-patch+yaml")
    with pytest.raises(Conflict, match="entrypoint"):
        installer.install(cluster.home, plan, bundle, {})


def test_what_must_be_there_is_named(cluster: Lab, drill: Drill) -> None:
    _, bundle = drill(cluster.where.namespace, cluster.target)
    claim = cluster.home.core("persistentvolumeclaims", "bringup-store")
    cluster.home.ask(lambda kube: kube.delete(claim))
    if REAL:  # where no controller looks whether pods still use it
        cluster.home.ask(lambda kube: kube.merge(claim, {"metadata": {"finalizers": None}}))
    until(lambda: cluster.home.ask(lambda kube: kube.get(claim, dict)) is None, "the claim to go")
    with pytest.raises(
        prerequisites.PrerequisiteMissing,
        match=f"namespace {cluster.where.namespace} .* has no PersistentVolumeClaim bringup-store",
    ):
        prerequisites.check_prerequisites(cluster.home, bundle)
    elsewhere = dataclasses.replace(cluster, where=msgspec.structs.replace(cluster.where, namespace="nowhere"))
    with pytest.raises(prerequisites.PrerequisiteMissing, match="the home cluster has no namespace nowhere") as absent:
        prerequisites.check_prerequisites(elsewhere.home, bundle)
    assert "argo_and_gitops.md" in absent.value.hint
    with pytest.raises(SecretMissing, match="secret kubeconfig"):
        prerequisites.collect_secrets(cluster.home, drill(cluster.where.namespace, cluster.folder / "nowhere")[0], Path("/"), {})


Claimed = Callable[..., Any]


@pytest.fixture
def claimed(emulated: Lab, drill: Drill) -> Claimed:
    """Makes a volume claim of these modes, and the bundle whose pods mount it."""

    def make(*modes: str, volume: str = "") -> Any:
        meta = {"name": "once", "namespace": emulated.where.namespace}
        spec = {"accessModes": list(modes), "resources": {"requests": {"storage": "1Gi"}}, "volumeName": volume or None}
        emulated.create({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec})
        plan, _ = drill(emulated.where.namespace, emulated.target)
        return render(plan, build, Settings(namespace=emulated.where.namespace, store_claim="once"))

    return make


def nodes(cluster: Lab, *names: str) -> None:
    for name in names:
        cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


@pytest.mark.parametrize("mode", ["ReadWriteOncePod", "ReadOnlyMany"])
def test_a_volume_that_pods_cannot_write_together_is_refused(emulated: Lab, claimed: Claimed, mode: str) -> None:
    with pytest.raises(
        prerequisites.PrerequisiteMissing, match=f"PersistentVolumeClaim once in namespace .* is {mode}: all pods"
    ) as refused:
        prerequisites.check_prerequisites(emulated.home, claimed(mode))
    assert "argo_and_gitops.md" in refused.value.hint


def test_a_volume_of_one_node_will_do_where_home_has_one(emulated: Lab, claimed: Claimed) -> None:
    bundle = claimed("ReadWriteOnce")
    nodes(emulated, "a")
    assert prerequisites.check_prerequisites(emulated.home, bundle) == ()
    nodes(emulated, "b")
    with pytest.raises(prerequisites.PrerequisiteMissing, match="is ReadWriteOnce, and there are 2 nodes: pods on any other node"):
        prerequisites.check_prerequisites(emulated.home, bundle)


def test_pods_that_build_images_need_a_namespace_that_takes_them(emulated: Lab, claimed: Claimed, tmp_path: Path) -> None:
    others, space = claimed("ReadWriteMany"), f"/api/v1/namespaces/{emulated.where.namespace}"
    plan = compile_image(small_image.spec(tmp_path), small_image.recipe(), small_image.files())
    builders = render(plan, image.build, Settings(namespace=emulated.where.namespace, store_claim="once"))
    assert prerequisites.check_prerequisites(emulated.home, builders) == ()
    emulated.home.ask(lambda kube: kube.merge(space, {"metadata": {"labels": {prerequisites.LEVEL: "restricted"}}}))
    with pytest.raises(
        prerequisites.PrerequisiteMissing, match="is at level restricted of Pod Security, and some pods of this run run as root"
    ):
        prerequisites.check_prerequisites(emulated.home, builders)
    assert prerequisites.check_prerequisites(emulated.home, others) == ()


def test_what_may_not_be_read_is_a_doubt_or_left_to_the_pods(drill: Drill, tmp_path: Path) -> None:
    _, bundle = drill("runs", tmp_path)
    with serving() as server:
        home = Home(HomeAddress(kubeconfig=str(write_access(server, tmp_path)), namespace="runs"))
        server.answers = [(200, b'{"spec":{"accessModes":["ReadWriteOnce"]}}'), (403, b"{}")]
        (doubt,) = prerequisites.check_prerequisites(home, bundle)
        assert "bringup-store in namespace runs of the home cluster is ReadWriteOnce, and how many nodes" in doubt
        server.answers = [(403, b"{}")]
        assert prerequisites.check_prerequisites(home, bundle) == ()
        server.answers = [(404, b"{}"), (403, b"{}")]
        with pytest.raises(
            prerequisites.PrerequisiteMissing, match="namespace runs of the home cluster has no PersistentVolumeClaim"
        ):
            prerequisites.check_prerequisites(home, bundle)


def test_what_the_guide_says_to_make_will_do(emulated: Lab, drill: Drill) -> None:
    text = (Path(__file__).parents[4] / "workflows/docs/argo_and_gitops.md").read_text()
    written = yaml.safe_load(text.partition("<<END\n")[2].partition("\nEND\n")[0])
    usual = Settings()
    assert written["metadata"] == {"name": usual.store_claim, "namespace": usual.namespace}
    assert f"BRINGUP_IMAGE=registry.example.org/{usual.image}" in text
    assert f"Argo Workflows ≥ {'.'.join(map(str, prerequisites.OLDEST))}" in text
    emulated.home.ask(lambda kube: kube.delete(emulated.home.core("persistentvolumeclaims", usual.store_claim)))
    emulated.create(written | {"metadata": written["metadata"] | {"namespace": emulated.where.namespace}})
    nodes(emulated, "a", "b")
    assert prerequisites.check_prerequisites(emulated.home, drill(emulated.where.namespace, emulated.target)[1]) == ()


def test_a_volume_that_lies_on_a_node_brings_all_pods_there(emulated: Lab, claimed: Claimed) -> None:
    here = {"matchExpressions": [{"key": prerequisites.HOSTNAME, "operator": "In", "values": ["a"]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "local": {"path": "/store"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [here]}},
    }
    emulated.create({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "local"}, "spec": spec})
    nodes(emulated, "a", "b")
    assert prerequisites.check_prerequisites(emulated.home, claimed("ReadWriteOnce", volume="local")) == ()


def test_all_secrets_that_are_missing_are_named_at_once(cluster: Lab, drill: Drill) -> None:
    plan, _ = drill(cluster.where.namespace, cluster.folder / "nowhere")
    theirs = (SecretFile(name="a", secret="absent", key="x"), SecretFile(name="b", secret="there", key="x"))
    plan = dataclasses.replace(plan, secrets=(*plan.secrets, *theirs, SecretFile(name="c", variable="BRINGUP_TEST_UNSET")))
    there = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there", "namespace": cluster.where.namespace}}
    cluster.create(there)
    with pytest.raises(SecretMissing) as missing:
        prerequisites.collect_secrets(cluster.home, plan, Path("/"), {})
    for words in ("nowhere", "BRINGUP_TEST_UNSET", "has no Secret absent", "Secret there of the home cluster has no key x"):
        assert words in str(missing.value)


def test_a_ca_of_home_that_nobody_can_read_is_refused(cluster: Lab, drill: Drill) -> None:
    plan, _ = drill(cluster.where.namespace, cluster.target)
    field, canary = "approvals[0].announce.ca", "canary-5c1e"
    ca = SecretFile(name="announce_ca.parade", secret="chat", key="ca.pem", certificates=field)
    plan = dataclasses.replace(plan, secrets=(*plan.secrets, ca))
    text = f"-----BEGIN PRIVATE KEY-----\n{canary}\n-----END PRIVATE KEY-----\n"
    meta = {"name": "chat", "namespace": cluster.where.namespace}
    data = {"ca.pem": base64.b64encode(text.encode()).decode()}
    cluster.create({"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})
    with pytest.raises(SecretMissing) as refused:
        prerequisites.collect_secrets(cluster.home, plan, Path("/"), {})
    assert f"Secret chat of the home cluster, key ca.pem: the secret file {ca.name} holds a private key; {field}" in str(
        refused.value
    )
    assert canary not in str(refused.value)


def test_a_secret_of_another_namespace_is_refused(cluster: Lab) -> None:
    text = examples.path("three-hosts").read_text()
    said = "secrets: {license: {secret: {name: one, key: k, namespace: vault}}, other: {secret: {name: two, key: k}}}\n"
    with pytest.raises(
        prerequisites.SecretOutOfNamespace, match=f"Secret vault/one, but runs in namespace {cluster.where.namespace}"
    ):
        prerequisites.check_namespaces(load(text + said), cluster.home)
    prerequisites.check_namespaces(load(text + said.replace("vault", cluster.where.namespace)), cluster.home)


def test_a_name_is_taken_once_but_a_lost_answer_is_none(cluster: Lab, drill: Drill) -> None:
    plan, bundle = drill(cluster.where.namespace, cluster.target)
    source = revision.SpecSource(commit="3f2a", path="{{x}}.yaml", dirty=False)
    manifest = submission.workflow("twice", plan, bundle, "earlier", source)
    first = submission.submit(cluster.home, manifest)
    assert submission.submit(cluster.home, manifest).metadata.uid == first.metadata.uid
    with pytest.raises(submission.NameTaken, match="has a Workflow twice already"):
        submission.submit(cluster.home, submission.workflow("twice", plan, bundle))
    with pytest.raises(submission.NameTaken, match="64 characters"):
        submission.submit(cluster.home, submission.workflow("x" * 64, plan, bundle))
    given = {row["name"]: row["value"] for row in manifest["spec"]["arguments"]["parameters"]}
    assert (given["reuse"], revision.from_token(given["source"])) == ("earlier", source)
    assert first.argument("source") == given["source"]
    assert "{" not in given["source"]


def test_our_own_pods_are_pulled_and_placed_as_those_of_the_run(cluster: Lab, drill: Drill) -> None:
    plan, _ = drill(cluster.where.namespace, cluster.target)
    bundle = render(plan, build, Settings(namespace=cluster.where.namespace, pull_secret="registry-login"))
    installer.install(cluster.home, plan, bundle, {})
    run = submission.submit(cluster.home, submission.workflow("one", plan, bundle))
    made = helper_pods.pod_manifest(cluster.home, run, helper_pods.HelperPod(purpose="look", command=("true",), environment={}))
    assert made["spec"]["imagePullSecrets"] == [{"name": "registry-login"}]
    assert made["spec"]["affinity"] == bundle.template["spec"]["affinity"]
