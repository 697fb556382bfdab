"""Wrapper charts of SUNK in the Git repository, byte for byte, and scripts that no layer changes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from workflows import catalog, examples
from workflows.gitops.layout import Layout
from workflows.gitops.repository_tree import render_tree
from workflows.rehearsal.simulator.charts import wrapper_templates
from workflows.spec import ClusterSpec, load

GOLDEN = Path(__file__).parent / "wrapper"
ARGO_CD = {"repo": "https://git.example.org/platform.git", "revision": "v1.4.0", "project": "platform"}
NASTY = "#!/bin/sh\n# {{ .Values.kept }} \"quotes\" 'too'\ttab, end of line \r\n\n  échec: |\n&& true\n\n"
SLURM: dict[str, Any] = {
    "kind": "sunk",
    "repo": "oci://registry.example.org/sunk",
    "version": "7.3.0",
    "layout": "wrapper",
    "home": {"storage_class": "cephfs", "size": "10Ti"},
    "prolog": {"10-check.sh": "#!/bin/sh\nexit 0\n", "20-nasty.sh": NASTY},
    "epilog": {"10-clean.sh": "#!/bin/sh\nexit 0"},
    "config_files": {"job_container.conf": "AutoBasePath=true\n"},
}
PARTS = ("charts/", "objects/", "stages/slurm/")


def cluster() -> ClusterSpec:
    written = yaml.safe_load(examples.path("h200-16").read_text(encoding="utf-8"))
    return load(yaml.safe_dump(written | {"slurm": SLURM, "delivery": {"mode": "argo_cd", "argo_cd": ARGO_CD}}))


def rendered() -> dict[str, str]:
    spec = cluster()
    tree, home = render_tree(spec, catalog.resolve(spec, catalog.load())), Layout.of(spec).home
    return {
        path.removeprefix(f"{home}/"): text for path, text in tree.items() if path.startswith(tuple(f"{home}/{p}" for p in PARTS))
    }


def test_files_are_as_committed() -> None:
    made = rendered()
    if os.environ.get("BRINGUP_REGENERATE") and os.environ.get("CI") != "true":
        for path, text in made.items():
            (GOLDEN / path).parent.mkdir(parents=True, exist_ok=True)
            (GOLDEN / path).write_bytes(text.encode())
    present = {str(file.relative_to(GOLDEN)): file.read_bytes().decode() for file in GOLDEN.rglob("*") if file.is_file()}
    assert present == made, "if the change is meant: BRINGUP_REGENERATE=1 uv run pytest tests/golden"


def test_it_has_the_layout_of_sunks_guide() -> None:
    made = rendered()
    names = {path.removeprefix("charts/") for path in made if path.startswith("charts/")}
    assert names == {
        "sunk/Chart.yaml",
        "sunk/values.yaml",
        "slurm/Chart.yaml",
        "slurm/values.yaml",
        "slurm/scripts/prolog.d/10-check.sh",
        "slurm/scripts/prolog.d/20-nasty.sh",
        "slurm/scripts/epilog.d/10-clean.sh",
        "slurm/scripts/etc-slurmctld/job_container.conf",
        "slurm/templates/prolog-configmap.yaml",
        "slurm/templates/epilog-configmap.yaml",
        "slurm/templates/etc-slurmctld-configmap.yaml",
    }
    for name in ("sunk", "slurm"):
        (wrapped,) = yaml.safe_load(made[f"charts/{name}/Chart.yaml"])["dependencies"]
        assert wrapped == {"name": name, "version": "7.3.0", "repository": "oci://registry.example.org/sunk"}
        assert list(yaml.safe_load(made[f"charts/{name}/values.yaml"])) == [name]


@pytest.mark.parametrize("kind", ["prolog", "epilog"])
def test_scripts_arrive_as_they_were_written(kind: str) -> None:
    """From the spec by a file in Git and the template to the ConfigMap that Slurm mounts."""
    files = {path.removeprefix("charts/slurm/"): text for path, text in rendered().items() if path.startswith("charts/slurm/")}
    maps = {item["metadata"]["name"]: item for item in wrapper_templates.config_maps(files, "slurm", "tenant-slurm")}
    assert maps[f"slurm-{kind}"]["data"] == SLURM[kind]
    values = yaml.safe_load(files["values.yaml"])["slurm"]["slurmConfig"]
    assert values["slurmd"][f"{kind}ConfigMap"] == f"slurm-{kind}"
    assert values["slurmCtld"]["etcConfigMap"] in maps
