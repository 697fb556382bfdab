"""Rules about charts of the tree: values that a chart reads, files that templates name, pinned dependencies, kustomizations."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from itertools import islice

from workflows.catalog.chart_schemas import chart_schema
from workflows.gitops_check.application_objects import ChartUse
from workflows.gitops_check.application_rules import floats
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, LocalChart, mapping, sequence
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.spec.compat.value_shapes import ShapeComparison, ValueFlaw
from workflows.spec.errors import Severity

_GLOB = re.compile(r"\.Files\.(Glob|Get|Lines|AsConfig|AsSecrets)\s+[\"`]([^\"`\n]{1,200})[\"`]")
_READ_VALUE = re.compile(r"\.Values\.([A-Za-z_][A-Za-z0-9_-]*)|index\s+\$?\.Values\s+\"([^\"]+)\"")
_READS_ALL = re.compile(r"\.Values\s{0,20}(\||\)|\}|\"|$)")
_INCLUDED, _DEFINED = (re.compile(rf"\b({word})\s{{1,9}}\"([^\"\n]{{1,200}})\"") for word in ("include|template", "define"))
_MAP_NAME = re.compile(r"^[ \t]*name:\s*[\"']?\{\{-?\s*\.Release\.Name\s*-?\}\}-([\w.-]+)", re.MULTILINE)
_WORDS = {
    "bool": "true or false without quotes",
    "number": "a number",
    "text": "text",
    "list": "a list",
    "map": "a group of keys",
}
_REMOTE = re.compile(r"^(https?://|git@|ssh://|github\.com/|[\w.-]+\.[a-z]{2,}/)")
_MOST_LISTED = 8
_SLURM_SCRIPT = re.compile(r"(^|/)(prolog|epilog)[^/]*/[^/]+$")
_NAMED_BY_USERS = re.compile(r"\.(nodeSelector|labels|annotations|matchLabels|podLabels|podAnnotations)\.")
"""Maps whose keys are no keys of a chart."""


def chart_findings(tree: DeliveryTree) -> Iterator[GitopsFinding]:
    """Yield findings about each chart of the tree by itself."""
    for chart in tree.charts.values():
        yield from _dependencies(chart)
        yield from _outside_key(chart)
        yield from _globs(chart)
        yield from _unwired(chart)
        yield from _scripts(tree, chart)


def _dependencies(chart: LocalChart) -> Iterator[GitopsFinding]:
    for number, entry in chart.dependencies:
        name, version, repository = (str(entry.get(key) or "") for key in ("name", "version", "repository"))
        line = chart.document.line("dependencies", number, "version" if "version" in entry else "name")
        if not repository.startswith("file://") and floats(version):
            words = f"dependency {name} takes whatever version is newest when Argo CD renders the chart"
            yield finding(
                "dependency-floats", (chart.chart_file, line), words, "write one exact version, such as 7.3.0", value=version
            )
        if repository.startswith("http://"):
            words = f"dependency {name} is loaded without TLS, so anyone on the way may change it"
            place = chart.chart_file, chart.document.line("dependencies", number, "repository")
            yield finding("insecure-repository", place, words, "use https or oci", value=repository)


def _outside_key(chart: LocalChart) -> Iterator[GitopsFinding]:
    """Yield a finding for each top-level key of values that neither a dependency nor a template of the chart reads."""
    keys = {str(entry.get("alias") or entry.get("name") or "") for _, entry in chart.dependencies}
    texts = "\n".join(chart.templates.values())
    foreign = {name for _, name in _INCLUDED.findall(texts)} - {name for _, name in _DEFINED.findall(texts)}
    # templates of a library chart read the values of the chart that includes them
    if not keys or foreign or _READS_ALL.search(texts):
        return
    read = {match for pair in _READ_VALUE.findall(texts) for match in pair if match}
    for entry in chart.dependencies:
        read |= {str(entry[1].get(key) or "").split(".")[0] for key in ("condition",)}
        read |= {str(item).partition(".")[0] for item in sequence(entry[1].get("tags"))} | {"tags", "global"}
    for file in chart.values.values():
        for key in mapping(file.document.data):
            if key not in keys | read:
                words = f"no chart reads {key}: values of a dependency stand below its name"
                fix = f"move it below {sorted(keys)[0]}:" if len(keys) == 1 else f"move it below one of {', '.join(sorted(keys))}"
                yield finding("values-outside-key", (file.path, file.document.line(key)), words, fix, value=key)


_MOST_ALTERNATIVES = 32
_BRACES = re.compile(r"\{([^{}]*)\}")


def _is_match(path: str, glob: str) -> bool:
    """Return True if a path fits Helm's glob, in which `*` does not cross a slash and `**` does.

    `fnmatch` does not backtrack, so no pattern takes long. One with `**` is compared more loosely than Helm does.
    """
    if "**" in glob:
        return fnmatchcase(path, glob)
    parts, wanted = path.split("/"), glob.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _alternatives(glob: str) -> list[str]:
    """Return the patterns that a pattern with braces stands for."""
    globs = [glob]
    while (match := _BRACES.search(globs[0])) and len(globs) <= _MOST_ALTERNATIVES:
        globs = [text.replace(match[0], word, 1) for text in globs for word in match[1].split(",")]
    return globs[:_MOST_ALTERNATIVES]


def _matches(function: str, wanted: str, files: frozenset[str]) -> bool:
    if function != "Glob":
        return wanted.removeprefix("./") in files
    return any(_is_match(file, glob) for glob in _alternatives(wanted) for file in files)


_MOST_GLOBS = 200
"""Calls of .Files in one template that are compared."""


def _globs(chart: LocalChart) -> Iterator[GitopsFinding]:
    own = {"Chart.yaml", "values.yaml", "values.schema.json", "Chart.lock"}
    readable = frozenset(file for file in chart.files - own if not file.startswith(("templates/", "charts/", "crds/")))
    for name, text in chart.templates.items():
        for match in islice(_GLOB.finditer(text), _MOST_GLOBS):
            function, wanted = match.groups()
            if not _matches(function, wanted, readable):
                line = text.count("\n", 0, match.start()) + 1
                words = f".Files.{function} matches no file of chart {chart.name}, and Helm renders nothing for it without an error"
                near = sorted({posixpath.dirname(file) for file in readable if "/" in file})[:3]
                fix = (
                    f"correct the pattern from the chart's folder (it has files in {', '.join(near)})" if near else "add the files"
                )
                yield finding("glob-matches-nothing", (posixpath.join(chart.folder, name), line), words, fix, value=wanted)


def _unwired(chart: LocalChart) -> Iterator[GitopsFinding]:
    """Yield a finding for each ConfigMap of files that neither values nor another template name."""
    texts = [" ".join(_scalars(file.document.data)) for file in chart.values.values()]
    for name, text in chart.templates.items():
        if ".Files." not in text or "kind: ConfigMap" not in text:
            continue
        others = [other for key, other in chart.templates.items() if key != name]
        for match in _MAP_NAME.finditer(text):
            if not any(match[1] in other for other in (*texts, *others)):
                line = text.count("\n", 0, match.start()) + 1
                words = f"ConfigMap RELEASE-{match[1]} is made of files, and no value names it, so nothing mounts it"
                fix = "name it in the values, such as slurmConfig.slurmd.prologConfigMap"
                yield finding("script-map-unwired", (posixpath.join(chart.folder, name), line), words, fix, value=match[1])


def _scripts(tree: DeliveryTree, chart: LocalChart) -> Iterator[GitopsFinding]:
    """Yield a finding for each prolog and epilog without a usable first line: Slurm drains every node on which one fails."""
    for name in sorted(chart.files):
        if not _SLURM_SCRIPT.search(name):
            continue
        path = posixpath.join(chart.folder, name)
        first = tree.files[path].partition("\n")[0]
        if first and (not first.startswith("#!") or first.endswith("\r")):
            flaw = "its first line ends with a carriage return" if first.endswith("\r") else "it does not begin with #!"
            words = f"the script cannot start ({flaw}), and Slurm drains each node whose prolog or epilog fails"
            yield finding(
                "script-not-runnable", (path, 1), words, "begin it with #!/bin/sh and end lines as Unix does", value=first
            )


def _scalars(data: object) -> Iterator[str]:
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping):
            stack += item.values()
        elif isinstance(item, list):
            stack += item
        elif isinstance(item, str):
            yield item


# ---- values against the catalogue's schemas -------------------------------------------------------------------------------------


def value_findings(uses: Iterable[ChartUse], names: Mapping[int, str]) -> Iterator[GitopsFinding | UncheckedPart]:
    """Yield findings about values of charts that the catalog knows; `names` has the component of a use by its `id`."""
    every = list(uses)
    remote = sorted({use.chart for use in every if use.application is not None and use.repository and use.local is None})
    if remote:
        words = f"charts of repositories are not downloaded, so what their templates make is not checked: {', '.join(remote)}"
        yield UncheckedPart(".", words)
    for use in every:
        component = names.get(id(use))
        schema = chart_schema(component) if component else None
        if use.local is not None:
            continue
        if schema is None or component is None:
            if use.values:
                yield UncheckedPart(use.place[0], f"no schema of chart {use.chart} is known: its values are not compared with it")
            continue
        yield from _nested(use, schema.values)
        unknown: list[str] = []
        is_known_version = use.version in schema.pins and not schema.is_partial
        for flaw in ShapeComparison().flaws({k: v for k, v in use.values.items() if k != use.chart}, schema.values, ""):
            key = flaw.path.removeprefix(".")
            if flaw.flaw in ("unknown", "misspelt") and _NAMED_BY_USERS.search(key):
                continue
            if flaw.flaw == "unknown" and not is_known_version:
                unknown += [key] if not key.startswith("global") else []
            elif not key.startswith("global."):
                yield _value_finding(use, flaw, key, is_known_version)
        if unknown:
            more = f" and {len(unknown) - _MOST_LISTED} more" if len(unknown) > _MOST_LISTED else ""
            listed = f"{', '.join(unknown[:_MOST_LISTED])}{more}"
            yield UncheckedPart(use.where()[0], f"values of {use.chart} that its schema ({schema.source}) does not have: {listed}")


def _nested(use: ChartUse, shape: Mapping[str, object]) -> Iterator[GitopsFinding]:
    inner = use.value(use.chart)
    if isinstance(inner, Mapping) and use.chart not in shape:
        words = f"values of chart {use.chart} stand below {use.chart}:, which only a chart around it would read"
        fix = "move them to the top level, or install a chart that has it as a dependency"
        yield finding("values-outside-key", use.where(use.chart), words, fix, value=use.chart)


def _value_finding(use: ChartUse, flaw: ValueFlaw, key: str, is_known_version: bool) -> GitopsFinding:
    path = tuple(int(part) if part.isdigit() else part for part in re.split(r"\.|\[|\]\.?", key) if part)
    severity: Severity | None = None if is_known_version else "warning"
    where, of = use.where(*path), f"chart {use.chart} {use.version}".rstrip()
    if flaw.flaw == "misspelt":
        words = f"{of} has no value {key}, and Helm ignores it"
        return finding("value-misspelt", where, words, f"did you mean {flaw.expected}?", value=key, severity=severity)
    if flaw.flaw == "type":
        words = f"{key} has another type in {of}"
        fix = f"write {_WORDS.get(flaw.expected, flaw.expected)}"
        shown = use.value(*map(str, path))
        return finding("value-type", where, words, fix, value="" if isinstance(shown, Mapping | list) else shown, severity=severity)
    words = f"the published values of {of} do not have {key}; a misspelt key has no effect"
    return finding("value-unknown", where, words, "compare with the chart's values.yaml", value=key)


# ---- kustomizations -------------------------------------------------------------------------------------------------------------


def kustomization_findings(tree: DeliveryTree) -> Iterator[GitopsFinding | UncheckedPart]:
    """Yield findings about kustomizations: resources that are not there, remote bases that float."""
    for folder, kustomization in tree.kustomizations.items():
        for key in ("resources", "components", "bases"):
            for number, entry in enumerate(sequence(kustomization.data.get(key))):
                yield from _base(tree, folder, str(entry), kustomization.where(key, number))
        yield from _images(kustomization)
        for number, chart in enumerate(map(mapping, sequence(kustomization.data.get("helmCharts")))):
            version = str(chart.get("version") or "")
            if floats(version):
                words = f"chart {chart.get('name')} of the kustomization is whatever version its repository has at a sync"
                where = kustomization.where("helmCharts", number, "version")
                yield finding("dependency-floats", where, words, "write the version in full", value=version or "no version")
        if kustomization.data.get("helmCharts"):
            yield UncheckedPart(kustomization.path, "helmCharts of a kustomization are not rendered")
        generated = [
            key for key in ("patches", "patchesStrategicMerge", "patchesJson6902", "transformers") if kustomization.data.get(key)
        ]
        if generated:
            yield UncheckedPart(
                kustomization.path, f"{' and '.join(generated)} are not applied: objects are checked as their files have them"
            )


def _images(kustomization: DeliveredObject) -> Iterator[GitopsFinding]:
    """Yield a finding for each image that the kustomization sets to a tag that moves; a digest fixes it."""
    for number, image in enumerate(map(mapping, sequence(kustomization.data.get("images")))):
        tag = str(image.get("newTag") or "")
        if tag == "latest" and not image.get("digest"):
            words = f"the kustomization sets image {image.get('name')} to whatever the registry has when a pod starts"
            where = kustomization.where("images", number, "newTag")
            yield finding("image-floats", where, words, "write a tag of a release or a digest", value=tag)


def _base(tree: DeliveryTree, folder: str, entry: str, where: tuple[str, int]) -> Iterator[GitopsFinding]:
    path = posixpath.normpath(posixpath.join(folder, entry))
    if path in tree.files or path in tree.kustomizations:
        return
    if _REMOTE.match(entry) and not path.startswith(".."):
        revision = re.search(r"[?&](?:ref|version)=([^&]+)", entry)
        is_release = re.search(r"/(releases/download|raw|blob)/|/v?\d+\.\d+", entry) and not re.search(
            r"/(main|master|HEAD)/", entry
        )
        if not is_release and (revision is None or revision[1] in ("HEAD", "main", "master")):
            words = "the remote base is read at whatever its branch has"
            yield finding("dependency-floats", where, words, "add ?ref=TAG or ?ref=COMMIT", value=entry)
        return
    words = "the kustomization names a file or folder that is not there, and cannot be built"
    yield finding("source-missing", where, words, "correct the path from the kustomization's folder", value=entry)
