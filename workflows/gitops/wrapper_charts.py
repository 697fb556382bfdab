"""Charts in the Git repository that wrap SUNK's charts: the layout of SUNK's own guide to GitOps.

Values of a wrapped chart stand below its name. Scripts are files of the wrapper, from which its templates make ConfigMaps, so that
no layer changes a byte of them. Source: https://docs.coreweave.com/products/sunk (Manage Deployments with CI and GitOps).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from workflows.catalog import PlannedRelease
from workflows.catalog.yaml_text import readable_yaml
from workflows.spec import ClusterSpec

WRAPPED = ("sunk", "sunk_slurm")
"""Ids of the releases that get a wrapper."""
_VERSION = "0.1.0"
"""Version of every wrapper. Argo CD reads the wrapper at the revision of the repository, so nothing compares it."""
_TEMPLATE = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{{{ .Release.Name }}}}-{name}
data:
{{{{ (.Files.Glob "scripts/{folder}/{pattern}").AsConfig | indent 2 }}}}
"""


def is_wrapped(spec: ClusterSpec, release: PlannedRelease) -> bool:
    """Return True if a release is installed by a wrapper chart in the Git repository."""
    return spec.slurm.kind == "sunk" and spec.slurm.layout == "wrapper" and release.id in WRAPPED


def wrapper_files(spec: ClusterSpec, release: PlannedRelease, head: str) -> Mapping[str, str]:
    """Return the files of a release's wrapper, path within its folder → text. `head` begins every file that is no script."""
    name, repository = _dependency(release)
    chart = {
        "apiVersion": "v2",
        "name": f"{name}-gitops",
        "version": _VERSION,
        "dependencies": [{"name": name, "version": release.version, "repository": repository}],
    }
    files = {
        "Chart.yaml": head + readable_yaml(chart),
        "values.yaml": head + readable_yaml({name: release.values}, sort=True),
    }
    if release.id == "sunk_slurm":
        for map_name, folder, pattern, texts in _scripts(spec):
            template = _TEMPLATE.format(name=map_name, folder=folder, pattern=pattern)
            files[f"templates/{map_name}-configmap.yaml"] = head + template
            files |= {f"scripts/{folder}/{file}": text for file, text in texts.items()}
    return files


def _scripts(spec: ClusterSpec) -> Iterator[tuple[str, str, str, Mapping[str, str]]]:
    """Yield name of ConfigMap, folder, pattern and files of each template; a pattern that matches nothing gets no template."""
    every = (
        ("prolog", "prolog.d", "*.sh", spec.slurm.prolog),
        ("epilog", "epilog.d", "*.sh", spec.slurm.epilog),
        ("etc-slurmctld", "etc-slurmctld", "*", spec.slurm.config_files),
    )
    yield from (entry for entry in every if entry[3])


def _dependency(release: PlannedRelease) -> tuple[str, str]:
    """Return name and repository of the wrapped chart as Helm's `dependencies` have them."""
    if release.repo:
        return release.chart, release.repo
    repository, _, name = release.chart.rpartition("/")
    return name, repository
