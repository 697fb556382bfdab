"""What is rendered is right for a real Argo: every object is taken with strict field validation, by the published CRDs."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubelab import product
from kubelab.control_plane import ControlPlane

DATA = Path(os.environ.get("BRINGUP_TEST_DATA") or product.ROOT.parent / "shared")
CRDS = DATA / "crds/argo-workflows-v4.1.2/crds"
FORMS = (
    ("h200-16", "bringup"),
    ("h200-16", "factory"),
    ("h200-16", "stack"),
    ("h200-16", "image"),
    ("multi-rack-232", "bringup"),
    ("dra", "bringup"),
    ("three-hosts", "bringup"),
    ("single-node", "bringup"),
)


@pytest.fixture(scope="module")
def argo(bare: ControlPlane) -> Iterator[ControlPlane]:
    """An API server with the full CRDs of Argo Workflows, and home's namespace."""
    before = bare.snapshot()
    bare.kubectl("apply", "--server-side", "-f", str(CRDS))
    bare.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    bare.kubectl("create", "namespace", "bringup")
    yield bare
    bare.restore(before)


@pytest.mark.parametrize(("example", "pipeline"), FORMS, ids=["-".join(form) for form in FORMS])
def test_every_rendered_object_is_taken(argo: ControlPlane, tmp_path: Path, example: str, pipeline: str) -> None:
    done = product.bringup(tmp_path / "home", "render", example, "--pipeline", pipeline, "--out", str(tmp_path / "made"))
    assert done.returncode == 0, done.stderr
    for name in ("rbac", "configmaps", "workflowtemplate"):
        file = tmp_path / "made" / f"{name}.yaml"
        assert "serverside-applied" in argo.kubectl("apply", "--server-side", "--validate=strict", "-f", str(file))
    workflow = tmp_path / "made/workflow.yaml"
    for mode in (["--dry-run=server"], []):
        assert "created" in argo.kubectl("create", "--validate=strict", *mode, "-f", str(workflow))


def test_a_misspelt_field_is_refused(argo: ControlPlane, tmp_path: Path) -> None:
    product.bringup(tmp_path / "home", "render", "three-hosts", "--out", str(tmp_path))
    template = tmp_path / "workflowtemplate.yaml"
    template.write_text(template.read_text().replace("retryPolicy:", "retryPolice:", 1))
    with pytest.raises(subprocess.CalledProcessError) as refused:
        argo.kubectl("apply", "--server-side", "--validate=strict", "-f", str(template))
    assert "retryPolice" in refused.value.stderr
