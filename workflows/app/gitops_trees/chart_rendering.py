"""Render the charts of a tree with `helm template`, where helm is installed: a copy of each chart, limited, without network."""

import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from steps import timeouts
from steps.clients import program_streams
from steps.errors import StepError
from workflows.catalog.yaml_text import values_text
from workflows.gitops_check.application_objects import ApplicationSource, applications, values_file
from workflows.gitops_check.delivery_check import RenderedChart
from workflows.gitops_check.delivery_tree import DeliveryTree, LocalChart, mapping, sequence, sort_files

MOST_CHARTS = 100
"""Limit of charts that are rendered: one takes 0.1 to 1 s."""
_LARGEST_OUTPUT = 16 << 20
_LIMITS = ("prlimit", f"--cpu={timeouts.CHART_RENDERING:.0f}", f"--data={2 << 30}", "--nofile=256", "--core=0")
"""Limits of helm: templates of a chart are programs, and may loop or take all memory."""
_OVER_LIMITS = re.compile(r"ended with (-9|-24|2|124|137|152):")
"""Ends of helm by a signal, by `timeout`, or by Go without memory: limits of this machine, no fault of the chart."""
_REMOTE_SCHEMA = re.compile(r'"\$ref"\s*:\s*"(?!#)')
_NO_HELM = "helm is not installed here, so its templates are not rendered: what they make is not checked"


def render_charts(files: Mapping[str, str]) -> tuple[RenderedChart, ...]:
    """Return what helm makes of each chart of a tree, or why it was not rendered."""
    tree = sort_files(files)
    charts = [chart for chart in tree.charts.values() if chart.templates or chart.dependencies]
    helm = shutil.which("helm")
    lacking = [program for program in ("prlimit", "timeout") if shutil.which(program) is None]
    if helm is None or lacking:
        reason = (
            _NO_HELM if helm is None else f"{' and '.join(lacking)} is not installed here, and helm is not started without limits"
        )
        return tuple(RenderedChart(chart.folder, not_rendered=reason) for chart in charts)
    return tuple(_rendered(tree, chart, helm, number) for number, chart in enumerate(charts))


def _rendered(tree: DeliveryTree, chart: LocalChart, helm: str, number: int) -> RenderedChart:
    reason = _reason_against(chart, tree) if number < MOST_CHARTS else f"more than {MOST_CHARTS} charts: this one is not rendered"
    if reason:
        return RenderedChart(chart.folder, not_rendered=reason)
    with tempfile.TemporaryDirectory(prefix="bringup-") as name:
        work = Path(name)
        arguments = _written(tree, chart, work)
        try:
            text = _run(helm, arguments, work)
        except StepError as problem:
            if _OVER_LIMITS.search(str(problem)):
                limits = f"{timeouts.CHART_RENDERING:.0f} s or 2 GiB"
                reason = f"helm needs more than {limits} for it, so what its templates make is not checked"
                return RenderedChart(chart.folder, not_rendered=reason)
            return RenderedChart(chart.folder, failure=_words(str(problem), work))
        except _TooLong:
            reason = f"it makes more than {_LARGEST_OUTPUT >> 20} MiB, which is not checked"
            return RenderedChart(chart.folder, not_rendered=reason)
    absent = absent_dependencies(chart)
    missing = f"{' and '.join(absent)} is not in charts/, and nothing is downloaded: what it makes is not checked" if absent else ""
    return RenderedChart(chart.folder, text=text, not_rendered=missing)


def absent_dependencies(chart: LocalChart) -> tuple[str, ...]:
    """Return the dependencies that are not in a chart's folder `charts`: nothing is downloaded, so they are left out."""
    vendored = {name.split("/")[1] for name in chart.files if name.startswith("charts/")}
    names = [str(entry.get("name") or "") for _, entry in chart.dependencies]
    return tuple(name for name in names if not any(file == name or file.startswith(f"{name}-") for file in vendored))


def _reason_against(chart: LocalChart, tree: DeliveryTree) -> str:
    """Return why a chart cannot be rendered; empty if it can."""
    # helm loads schemas that a schema refers to
    schema = tree.files.get(f"{chart.folder}/values.schema.json".lstrip("/"), "")
    if _REMOTE_SCHEMA.search(schema):
        return "its values.schema.json refers to other files or the network, and is not loaded"
    return ""


def _written(tree: DeliveryTree, chart: LocalChart, work: Path) -> list[str]:
    """Write a copy of a chart and of its Application's values; return the arguments of helm."""
    prefix = f"{chart.folder}/" if chart.folder else ""
    folder = work / "chart"
    for name in chart.files - {"Chart.lock"}:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(tree.files[prefix + name], encoding="utf-8")
    if absent := absent_dependencies(chart):
        kept = [dict(entry) for _, entry in chart.dependencies if entry.get("name") not in absent]
        described = {**mapping(chart.document.data), "dependencies": kept}
        (folder / "Chart.yaml").write_text(values_text(described), encoding="utf-8")
    release, namespace, values = chart.name, "default", list[str]()
    for application in applications(tree):
        for source in application.sources:
            if source.text("path") and tree.folder_of(source.text("path")) == chart.folder and not application.is_template:
                release = str(source.helm.get("releaseName") or application.name)
                namespace = application.namespace or "default"
                values = [f for name in sequence(source.helm.get("valueFiles")) if (f := _values_text(tree, source, str(name)))]
                break
    arguments = [re.sub(r"[^a-z0-9-]", "-", release.lower())[:53] or "chart", str(folder), "--namespace", namespace]
    for number, text in enumerate(values):
        file = work / f"values-{number}.yaml"
        file.write_text(text, encoding="utf-8")
        arguments += ["--values", str(file)]
    return arguments


def _values_text(tree: DeliveryTree, source: ApplicationSource, name: str) -> str:
    entry = values_file(tree, source, name)
    return tree.files[entry.path] if entry else ""


class _TooLong(Exception):
    """Exception for output over the limit."""


def _run(helm: str, arguments: list[str], work: Path) -> str:
    environment = ("env", "-i", f"HOME={work}", f"TMPDIR={work}", "PATH=/usr/bin:/bin", "KUBECONFIG=/dev/null", *_NO_NETWORK)
    limits = ("timeout", "--kill-after=1", f"{timeouts.CHART_RENDERING:.0f}", *_LIMITS)
    command = (*environment, *limits, helm, "template", *arguments, "--skip-tests", "--include-crds")
    parts, size = list[bytes](), 0
    with program_streams.open_output(command, work / "errors") as stream:
        while part := stream.read(1 << 20):
            size += len(part)
            if size > _LARGEST_OUTPUT:
                raise _TooLong
            parts.append(part)
    return b"".join(parts).decode(errors="replace")


_NO_NETWORK = tuple(f"{name}=http://127.0.0.1:9" for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"))
"""Proxies that answer nothing: rendering a folder needs no network, and a chart cannot talk helm into using one."""


def _words(text: str, work: Path) -> str:
    return text.replace(f"{work}/", "").replace("timeout ended", "helm ended").replace("env ended", "helm ended")
