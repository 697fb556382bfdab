"""A site's own folder: a new chart is data, not code; and a catalog that does not fit together is refused as a whole."""

from pathlib import Path

import pytest

from workflows import catalog, spec
from workflows.catalog.templating import BadReference, fill
from workflows.examples import path

COMPONENT = """
components:
  node_exporter:
    stage: base_services
    when: {gpu: "yes"}
    chart: prometheus-node-exporter
    repo: https://prometheus-community.github.io/helm-charts
    version: 4.50.0
    namespace: monitoring
    values: node_exporter.yaml
    needs: [prometheus_operator_crds]
    gates: [base_services/control]
    rollout: rolling_update
    health: DaemonSet ready on every node
    rollback: pin the release before
"""


def site(folder: Path, components: str = COMPONENT, **files: str) -> Path:
    (folder / "components.yaml").write_text(components, encoding="utf-8")
    (folder / "values").mkdir(exist_ok=True)
    (folder / "values" / "node_exporter.yaml").write_text("cluster: ${name}\ngpus: ${accelerator.per_node}\n", encoding="utf-8")
    for name, text in files.items():
        file = folder / name.replace("__", "/")
        file.parent.mkdir(exist_ok=True)
        file.with_suffix(".yaml").write_text(text, encoding="utf-8")
    return folder


def planned(folder: Path, example: str = "h200-16") -> dict[str, catalog.PlannedRelease]:
    return {release.id: release for release in catalog.resolve(spec.load(path(example)), catalog.load(folder))}


def test_a_new_chart_is_an_entry_and_a_values_file(tmp_path: Path) -> None:
    release = planned(site(tmp_path))["node_exporter"]
    assert release.source == "https://prometheus-community.github.io/helm-charts prometheus-node-exporter"
    assert release.release_name == "node-exporter"
    assert release.values == {"cluster": "h200-16", "gpus": 8}
    assert release.needs == ("prometheus_operator_crds",)
    assert "node_exporter" not in planned(tmp_path, "three-hosts")


def test_an_overlay_of_a_site_changes_a_chart_of_the_package(tmp_path: Path) -> None:
    overlay = "why: our hall\ncriteria: {site: hall-b}\ncomponents: {kai_scheduler: {values: {global: {jsonLog: true}}}}\n"
    folder = site(tmp_path, overlays__hall_b=overlay)
    release = planned(folder, "multi-rack-232")["kai_scheduler"]
    assert release.values["global"] == {"jsonLog": True}
    assert release.provenance[-1].origin == "overlay hall_b"
    assert "kai_scheduler" not in planned(folder, "h200-16")


def test_an_overlay_can_leave_a_component_out(tmp_path: Path) -> None:
    overlay = "why: no MPI here\ncomponents: {mpi_operator: {enabled: false}}\n"
    assert "mpi_operator" not in planned(site(tmp_path, overlays__no_mpi=overlay))


@pytest.mark.parametrize("field", ["repo", "version", "namespace", "rollout", "health", "rollback"])
def test_an_empty_fact_is_an_error(tmp_path: Path, field: str) -> None:
    lines = [line for line in COMPONENT.splitlines() if not line.strip().startswith(f"{field}:")]
    with pytest.raises(spec.SpecErrors) as caught:
        planned(site(tmp_path, "\n".join(lines) + "\n"))
    named = "source" if field == "repo" else field
    assert [error.path for error in caught.value.errors] == [f"catalog.node_exporter.{named}"]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("needs: [prometheus_operator_crds]", "needs: [nobody]", "nobody is no component"),
        ("needs: [prometheus_operator_crds]", "needs: [node_exporter]", "in a circle"),
        ("values: node_exporter.yaml", "values: missing.yaml", "does not exist"),
        ('when: {gpu: "yes"}', "when: {gpus: eight}", "this is no dimension"),
        ("stage: base_services", "stage: monitoring", "not one of"),
        ("version: 4.50.0", "version: 4.50.0\n    wersion: 1", "is not a key of this section"),
        ("chart: prometheus-node-exporter", "chart: ''", "either a chart or a manifest"),
        ("stage: base_services", "stage: validation", "stage validation installs its own charts only"),
        ("stage: base_services", "stage: os_prep", "stage os_prep installs its own charts only"),
        ("chart: prometheus-node-exporter", "manifest: https://e.org/{version}.yaml", "no stage applies manifests of a site"),
        ("gates: [base_services/control]", "gates: [base_services/contrl]", "is no gate that judges charts of stage base_services"),
        ("values: node_exporter.yaml", "objects: [{file: ip_pool.yaml}]", "nothing would apply these objects"),
        ("gates: [base_services/control]", "gates: [gang/control]", "is no gate that judges charts of stage base_services"),
    ],
)
def test_a_catalog_that_does_not_fit_is_refused(tmp_path: Path, old: str, new: str, sentence: str) -> None:
    with pytest.raises(spec.SpecErrors, match=sentence):
        catalog.load(site(tmp_path, COMPONENT.replace(old, new)))


@pytest.mark.parametrize(
    ("overlay", "sentence"),
    [
        ("why: x\nbase: nobody\ncomponents: {}\n", "nobody is no overlay"),
        ("why: x\nbase: broken\ncomponents: {}\n", "in a circle"),
        ("why: x\ncomponents: {nobody: {}}\n", "nobody is no component"),
        ("why: x\ncriteria: {color: red}\ncomponents: {}\n", "this is no dimension"),
        ("components: {}\n", "this key is required"),
    ],
)
def test_an_overlay_that_does_not_fit_is_refused(tmp_path: Path, overlay: str, sentence: str) -> None:
    with pytest.raises(spec.SpecErrors, match=sentence):
        catalog.load(site(tmp_path, overlays__broken=overlay))


def test_a_reference_to_nothing_is_an_error_of_the_release(tmp_path: Path) -> None:
    folder = site(tmp_path, values__node_exporter="x: ${accelerator.driver_version}\n")
    with pytest.raises(spec.SpecErrors, match=r"accelerator\.driver_version} is not set in this spec"):
        planned(folder)


SCOPE = {"a": {"n": 8, "on": True, "list": [{"k": "x", "v": 1}, {"k": "y", "v": 2}], "none": None}}
FACTS = {"gpu": "yes"}


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("${a.n}", 8),
        ("n=${a.n} on=${a.on}", "n=8 on=true"),
        ({"k": ["${a.n}", 1]}, {"k": [8, 1]}),
        ({"$each": "a.list", "$key": "${item.k}", "$value": {"v": "${item.v}"}}, {"x": {"v": 1}, "y": {"v": 2}}),
        ({"$each": "a.list", "$value": "${item.v}"}, [1, 2]),
        ({"in": {"$when": {"gpu": "yes"}, "x": 1}, "out": {"$when": {"gpu": "no"}, "x": 1}}, {"in": {"x": 1}}),
        ([{"$when": {"gpu": "no"}, "x": 1}, 2], [2]),
        ({"t": {"$when": {"gpu": ["no", "yes"]}, "$value": [1]}}, {"t": [1]}),
        ("$HOME {braces} $${x", "$HOME {braces} $${x"),
    ],
)
def test_references_are_filled(template: object, expected: object) -> None:
    assert fill(template, SCOPE, FACTS) == expected


@pytest.mark.parametrize("template", ["${b}", "${a.m}", "${a.n.x}", "${a.none}", "x ${a.none}", {"$each": "a.m", "$value": 1}])
def test_a_reference_to_nothing_is_an_error(template: object) -> None:
    with pytest.raises(BadReference):
        fill(template, SCOPE, FACTS)
