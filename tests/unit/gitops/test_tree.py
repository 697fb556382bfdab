"""The tree as a whole: always the same, readable, pinned, in order; and environments that differ in nothing but what they may."""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml

from steps.contract.delivery import Publication, Tree
from workflows import catalog, examples, spec
from workflows.gitops import drift, projects
from workflows.gitops.layout import Layout
from workflows.gitops.repository_tree import published_files, render_tree
from workflows.spec import ClusterSpec
from workflows.spec.fields import is_floating
from workflows.stage_names import STAGES

ARGO_CD: dict[str, Any] = {"repo": "https://git.example.org/platform.git", "revision": "v1.4.0", "project": "platform"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
QUEUES = [{"name": "a", "namespace": "a", "gpus": 8}]
SUNK = {"kind": "sunk", "repo": "https://charts.example.org/sunk", "version": "7.3.0"}
VARIANTS: dict[str, dict[str, Any]] = {
    "slinky": {},
    "sunk": {"slurm": SUNK},
    "dra": {"sharing": {"mode": "dra"}, "slurm": {"kind": "none"}},
    "queues": {"scheduler": {"gang": "kai", "quota": "kueue", "queues": QUEUES}},
    "commit": {"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD | {"revision": COMMIT}}},
    "elsewhere": {"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD | {"path": "clusters/gpu", "namespace": "gitops"}}},
}


def cluster(**changes: Any) -> ClusterSpec:
    written = yaml.safe_load(examples.path("h200-16").read_text())
    return spec.load(yaml.safe_dump(written | {"delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD}} | changes))


def made(one: ClusterSpec) -> dict[str, str]:
    return render_tree(one, catalog.resolve(one, catalog.load()))


def documents(text: str) -> list[dict[str, Any]]:
    return list(yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))


def objects(files: Mapping[str, str], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, text in files.items():
        if path.endswith(".yaml"):
            yield from ((path, one) for one in documents(text) if one.get("kind") == kind)


def values_of(key: str, data: Any) -> Iterator[Any]:
    if isinstance(data, dict):
        yield from (value for name, value in data.items() if name == key)
        yield from itertools.chain.from_iterable(values_of(key, value) for value in data.values())
    elif isinstance(data, list):
        yield from itertools.chain.from_iterable(values_of(key, value) for value in data)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_same_spec_gives_the_same_bytes(variant: str) -> None:
    one = cluster(**VARIANTS[variant])
    first, second = made(one), made(cluster(**VARIANTS[variant]))
    assert list(first.items()) == list(second.items())
    assert list(first) == sorted(first)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_file_can_be_read_and_says_who_writes_it(variant: str) -> None:
    one = cluster(**VARIANTS[variant])
    layout = Layout.of(one)
    for path, text in made(one).items():
        place = PurePosixPath(path)
        assert not place.is_absolute()
        assert ".." not in place.parts
        assert text.endswith("\n")
        if place.suffix == ".yaml":
            assert text.startswith("# ")
            assert ("bringup writes this file once" if path.startswith(layout.overlay) else "Written by bringup") in text
            assert all(isinstance(document, dict) for document in documents(text))
        else:
            assert (place.name, "PATH" in text) == ("README.md", False)


@pytest.mark.parametrize("variant", VARIANTS)
def test_nothing_floats_and_nothing_uses_the_project_default(variant: str) -> None:
    files = made(cluster(**VARIANTS[variant]))
    read = [one for path, text in files.items() if path.endswith(".yaml") and "/values/" not in path for one in documents(text)]
    revisions = [str(found) for one in read for found in values_of("targetRevision", one)]
    assert revisions
    assert [one for one in revisions if is_floating(one) or one == "main"] == []
    named = {found for one in read for found in values_of("project", one)}
    assert named == {"platform", "platform-roots", "bringup-environments"}
    made_projects = {one["metadata"]["name"] for _, one in objects(files, "AppProject")}
    assert made_projects == named


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_application_may_do_what_it_does(variant: str) -> None:
    """The project of each application allows its sources and its destination, and the application lies in Argo CD's namespace."""
    one = cluster(**VARIANTS[variant])
    files, argo = made(one), one.delivery.argo_cd
    assert argo is not None
    allowed = {project["metadata"]["name"]: project["spec"] for _, project in objects(files, "AppProject")}
    for path, application in objects(files, "Application"):
        body, project = application["spec"], allowed[application["spec"]["project"]]
        sources = body.get("sources", [body.get("source")])
        assert {source["repoURL"] for source in sources} <= set(project["sourceRepos"]), path
        assert body["destination"] in project["destinations"], path
        assert application["metadata"]["namespace"] == argo.namespace


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_stage_folder_is_a_kustomization_of_exactly_its_applications_and_the_overlay(variant: str) -> None:
    one = cluster(**VARIANTS[variant])
    files, layout = made(one), Layout.of(one)
    found = 0
    for path, kustomization in objects(files, "Kustomization"):
        folder = str(PurePosixPath(path).parent)
        listed = {f"{folder}/{name}" for name in kustomization["resources"]}
        assert listed == {name for name in files if name.startswith(f"{folder}/")} - {path}
        assert kustomization["components"] == ["../../overlay"]
        found += len(listed)
    delivered = [release for release in catalog.resolve(one, catalog.load()) if release.chart and release.id != "argo_cd"]
    assert found == len(delivered)
    (component,) = documents(files[f"{layout.overlay}/kustomization.yaml"])
    assert component["metadata"]["name"], "Kustomize calls a component without any field empty, and fails"


def test_waves_follow_the_stages_and_within_a_stage_what_is_needed() -> None:
    files = made(cluster())
    roots = {
        path: int(one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"])
        for path, one in objects(files, "Application")
        if "/roots/" in path
    }
    ordered = [PurePosixPath(path).stem.replace("-", "_") for path in sorted(roots, key=roots.__getitem__)]
    assert ordered == [stage for stage in STAGES if stage in ordered]
    assert len(set(roots.values())) == len(roots)
    waves = {
        one["metadata"]["name"]: one["metadata"]["annotations"]["argocd.argoproj.io/sync-wave"]
        for path, one in objects(files, "Application")
        if "/stages/slurm/" in path
    }
    assert waves == {"slurm-operator-crds": "0", "slurm-operator": "1", "slurm": "2"}


def test_values_are_in_git_for_a_tag_and_in_the_application_for_a_commit() -> None:
    tagged, committed = made(cluster()), made(cluster(**VARIANTS["commit"]))
    (child,) = documents(tagged["apps/environments/h200-16/stages/gpu-operator/gpu-operator.yaml"])
    chart, values = child["spec"]["sources"]
    path = chart["helm"]["valueFiles"][0].removeprefix("$values/")
    assert values == {"repoURL": ARGO_CD["repo"], "targetRevision": "v1.4.0", "ref": "values"}
    (inline,) = documents(committed["apps/environments/h200-16/stages/gpu-operator/gpu-operator.yaml"])
    assert [source["helm"]["valuesObject"] for source in inline["spec"]["sources"]] == documents(tagged[path])
    assert not [name for name in committed if "/values/" in name]


def test_a_commit_holds_nothing_that_names_a_commit() -> None:
    """Else it could never be found: its own id would have to stand in it. What it must hold is the same for every commit."""
    trees = []
    for revision in (COMMIT, COMMIT[::-1]):
        one = cluster(delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | {"revision": revision}})
        trees.append(published_files(one, made(one)))
        layout, argo = Layout.of(one), ARGO_CD | {"revision": revision}
        publication = Publication(
            repo=argo["repo"],
            revision=revision,
            path=layout.path,
            environment=layout.environment,
            tree=Tree(digest=""),
            owned=(f"{layout.home}/",),
        )
        left_out = made(one).keys() - trees[-1].keys()
        assert left_out
        assert all(publication.names_revision(path) for path in left_out), "both sides name the same files"
    assert trees[0] == trees[1]
    tagged = cluster()
    assert published_files(tagged, made(tagged)) == made(tagged)


def test_environments_differ_only_in_values_revision_and_name() -> None:
    """Brought to one name and one revision, two environments of one catalog are equal but for their values."""
    staging = made(cluster(delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | {"environment": "staging", "revision": "v1.5.0-rc1"}}))
    production = made(
        cluster(
            delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | {"environment": "production"}},
            overrides={"gpu_operator": {"values": {"dcgm": {"enabled": False}}}},
        )
    )
    renamed = {
        path.replace("/staging/", "/production/"): text.replace("staging", "production").replace("v1.5.0-rc1", "v1.4.0")
        for path, text in staging.items()
    }
    assert renamed.keys() == production.keys()
    assert [path for path in renamed if renamed[path] != production[path]] == [
        "apps/environments/production/values/gpu-operator.yaml"
    ]
    assert drift.environment_differences(Layout("apps", "production"), {**staging, **production}) == []


def test_common_files_are_the_same_for_every_environment() -> None:
    """Or two clusters would write over each other's, run by run."""
    one = made(cluster())
    other = made(
        cluster(
            name="other",
            scheduler={"gang": "kai"},
            slurm={"kind": "none"},
            delivery={"mode": "argo_cd", "argo_cd": ARGO_CD | {"project": "hpc", "revision": "v9"}},
        )
    )
    shared = one.keys() & other.keys()
    assert shared == set(Layout("apps", "any").common)
    assert all(one[path] == other[path] for path in shared)


def test_the_application_set_takes_all_that_differs_from_the_environments_file() -> None:
    files = made(cluster())
    ((_, application_set),) = objects(files, "ApplicationSet")
    (environment,) = documents(files["apps/environments/h200-16/environment.yaml"])
    assert environment == {
        "name": "h200-16",
        "server": "https://10.10.0.10:6443",
        "revision": "v1.4.0",
        "roots": "apps/environments/h200-16/roots",
    }
    template = yaml.safe_dump(application_set["spec"]["template"])
    assert {f"{{{{.{key}}}}}" for key in environment} == {f"{{{{{part.split('}}')[0]}}}}}" for part in template.split("{{")[1:]}
    (generator,) = application_set["spec"]["generators"]
    assert generator["git"]["files"] == [{"path": "apps/environments/*/environment.yaml"}]


def test_kinds_are_exact() -> None:
    """`Nodeset`, as SUNK's own guide has it, would match nothing, in silence."""
    one = cluster(slurm=SUNK)
    (child,) = [found for path, found in objects(made(one), "Application") if path.endswith("/stages/slurm/slurm.yaml")]
    ignored = [(entry["group"], entry["kind"]) for entry in child["spec"]["ignoreDifferences"]]
    assert ignored == [("batch", "Job"), ("", "ConfigMap"), ("sunk.coreweave.com", "NodeSet")]
    assert child["spec"]["ignoreDifferences"][0]["jqPathExpressions"] == [".spec.template"]
    assert child["spec"]["ignoreDifferences"][1]["jqPathExpressions"] == ['.data["gres.conf"]', '.data["topology.conf"]']
    assert "RespectIgnoreDifferences=true" in child["spec"]["syncPolicy"]["syncOptions"]
    assert "RespectIgnoreDifferences=true" in child["spec"]["syncPolicy"]["syncOptions"]
    keys = projects.settings(catalog.resolve(one, catalog.load()))
    assert "resource.customizations.knownTypeFields.sunk.coreweave.com_NodeSet" in keys
    assert "resource.customizations.knownTypeFields.slinky.slurm.net_NodeSet" not in keys
    for key, text in keys.items():
        if ".knownTypeFields." in key:
            assert yaml.safe_load(text) == [{"field": "spec.template.spec", "type": "core/v1/PodSpec"}]


@pytest.mark.parametrize("variant", VARIANTS)
def test_health_is_asked_of_applications_always_and_of_kinds_that_are_there(variant: str) -> None:
    one = cluster(**VARIANTS[variant])
    releases = catalog.resolve(one, catalog.load())
    keys = projects.settings(releases)
    assert "resource.customizations.health.argoproj.io_Application" in keys
    groups = {crd.partition(".")[2] for release in releases for crd in release.crds} | {"argoproj.io", "helm.cattle.io"}
    assert {key.split(".", 3)[3].rpartition("_")[0] for key in keys} <= groups
    assert all(text.endswith("\n") and "return" in text for key, text in keys.items() if ".health." in key)


def test_no_release_is_torn_out_by_a_change_in_git() -> None:
    for path, application in objects(made(cluster()), "Application"):
        assert "finalizers" not in application["metadata"], path


def test_retries_outlast_a_network_that_was_away_and_still_end() -> None:
    """After its last retry Argo CD leaves the same revision alone for good: a stage that starts again would wait for nothing."""
    files = made(cluster())
    policies = [one["spec"]["syncPolicy"] for _, one in objects(files, "Application")]
    policies += [one["spec"]["template"]["spec"]["syncPolicy"] for _, one in objects(files, "ApplicationSet")]
    (retry,) = {yaml.safe_dump(policy["retry"]) for policy in policies}
    limit, backoff = yaml.safe_load(retry)["limit"], yaml.safe_load(retry)["backoff"]
    assert backoff == {"duration": "10s", "factor": 2, "maxDuration": "3m"}
    waited = sum(min(10 * 2**number, 180) for number in range(limit))
    assert max(release.timeout_seconds for release in catalog.resolve(cluster(), catalog.load())) <= waited <= 3600


def test_the_health_of_an_application_asks_what_its_status_was_compared_with() -> None:
    """Pins are compared before a status is believed; `tests/cluster` shows how the real Argo CD behaves."""
    text = projects.settings(())["resource.customizations.health.argoproj.io_Application"]
    assert 0 < text.index("pins(sync.comparedTo) ~= pins(obj.spec)") < text.index("Degraded")


def test_roots_may_make_applications_and_nothing_else() -> None:
    one = cluster()
    _, roots = projects.projects(one, catalog.resolve(one, catalog.load()))
    assert roots["spec"]["clusterResourceWhitelist"] == []
    assert roots["spec"]["namespaceResourceWhitelist"] == [{"group": "argoproj.io", "kind": "Application"}]
    assert roots["spec"]["destinations"] == [{"server": "https://kubernetes.default.svc", "namespace": "argocd"}]
