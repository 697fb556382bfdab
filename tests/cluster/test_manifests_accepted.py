"""A real Argo accepts all that is rendered: each object passes strict field validation against the published CRDs."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from actors import argo_home
from kubelab import custom_kinds, product
from kubelab.control_plane import ControlPlane

from workflows import examples

STARTS = """
schedule: {cron: ["0 2 * * 6", "30 4 1 * *"], timezone: Europe/Berlin, starting_deadline: 20m, suspend: true}
events:
  - {name: machine-replaced, selector: 'discriminator == "dc1" && payload.event == "machine-replaced"'}
  - {name: nightly, selector: 'payload.ref == "refs/heads/main"'}
"""
"""Sections of a spec that no example has: a schedule and events."""

FORMS = (
    ("h200-16", "bringup"),
    ("multi-rack-232", "bringup"),
    ("dra", "bringup"),
    ("three-hosts", "bringup"),
    ("single-node", "bringup"),
)
RECORDS = ("slurm-contract", "workload-placement")
"""Files for people, rendered with Slurm."""
HOME = ("rbac", "configmaps", "workflowtemplate", "starts")
"""Files that are applied in home; `target-rbac` is for the target, which has Namespaces of its own in it."""

MISSPELT = (
    ("workflowtemplate", "retryPolicy"),
    ("workflowtemplate", "readOnlyRootFilesystem"),
    ("starts", "concurrencyPolicy"),
    ("starts", "selector"),
    ("starts", "workflowTemplateRef"),
)


@pytest.fixture(scope="module")
def argo(bare: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with the full CRDs of Argo Workflows, and home's namespace."""
    before = bare.snapshot()
    custom_kinds.install(bare, argo_home.CRDS)
    bare.kubectl("create", "namespace", "bringup")
    yield bare
    bare.restore(before)


def render(folder: Path, example: str, pipeline: str = "bringup") -> Path:
    """Run `bringup render` on an example with a schedule and events; return the folder of the rendered files."""
    (folder / "spec.yaml").write_text(examples.path(example).read_text() + STARTS)
    made = folder / "made"
    done = product.bringup(folder / "home", "render", str(folder / "spec.yaml"), "--pipeline", pipeline, "--out", str(made))
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.sampled_rows(3)
@pytest.mark.parametrize(("example", "pipeline"), FORMS, ids=["-".join(form) for form in FORMS])
def test_every_rendered_object_is_taken(argo: ControlPlane, tmp_path: Path, example: str, pipeline: str) -> None:
    made = render(tmp_path, example, pipeline)
    assert {path.stem for path in made.iterdir()} - {*RECORDS} == {*HOME, "workflow", "target-rbac"}
    strict = ("apply", "--server-side", "--validate=strict")
    home = [part for name in HOME for part in ("-f", str(made / f"{name}.yaml"))]
    for mode in (["--dry-run=server"], []):
        said = argo.kubectl(*strict, *mode, *home)
        for kind in ("workflowtemplate", "cronworkflow", "workfloweventbinding"):
            assert f"{kind}.argoproj.io/" in said
    target = made / "target-rbac.yaml"
    if target.read_text().strip():
        assert "serverside-applied" in argo.kubectl(*strict, "-f", str(target))
    workflow = made / "workflow.yaml"
    for mode in (["--dry-run=server"], []):
        assert "created" in argo.kubectl("create", "--validate=strict", *mode, "-f", str(workflow))
    schedule = argo.kubectl("-n", "bringup", "get", "cronworkflow", "-o", "jsonpath={.items[*].spec.schedules[*]}")
    assert "30 4 1 * *" in schedule


def test_every_rendered_object_of_a_node_image_is_taken(argo: ControlPlane, tmp_path: Path) -> None:
    example = Path(examples.__file__).parent / "images/image.yaml"
    own = ("lock:", "variables:")  # without them: the lock that its recipe comes with, and the kernel in it
    lines = [line for line in example.read_text().splitlines() if not line.startswith(own)]
    (tmp_path / "image.yaml").write_text("\n".join(lines))
    take(argo, tmp_path, tmp_path / "image.yaml")


def test_every_rendered_object_of_a_factory_is_taken(argo: ControlPlane, tmp_path: Path) -> None:
    take(argo, tmp_path, Path(examples.__file__).parent / "factories/factory.yaml")


def take(argo: ControlPlane, folder: Path, spec: Path) -> None:
    """Render a spec without schedule and events, and apply all of it with strict validation."""
    made = folder / "made"
    done = product.bringup(folder / "home", "render", str(spec), "--out", str(made))
    assert done.returncode == 0, done.stderr
    home = [part for name in HOME if name != "starts" for part in ("-f", str(made / f"{name}.yaml"))]
    assert "workflowtemplate.argoproj.io/" in argo.kubectl("apply", "--server-side", "--validate=strict", *home)
    assert "created" in argo.kubectl("create", "--validate=strict", "-f", str(made / "workflow.yaml"))


@pytest.fixture(scope="module")
def three_hosts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what one example renders to."""
    return render(tmp_path_factory.mktemp("rendered"), "three-hosts")


@pytest.mark.parametrize(("file", "field"), MISSPELT, ids=[field for _, field in MISSPELT])
def test_a_misspelt_field_is_refused(argo: ControlPlane, three_hosts: Path, tmp_path: Path, file: str, field: str) -> None:
    right = (three_hosts / f"{file}.yaml").read_text()
    assert f"{field}:" in right
    made = tmp_path / f"{file}.yaml"
    made.write_text(right.replace(f"{field}:", f"{field}x:", 1))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        argo.kubectl("apply", "--server-side", "--validate=strict", "-f", str(made))
    assert f"{field}x" in refused.value.stderr
