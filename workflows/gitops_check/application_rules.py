"""Rules about Applications: pinned sources that exist, policies that do not fight others, order, namespaces, projects."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from workflows.gitops_check.application_objects import (
    ApplicationSource,
    DeliveredApplication,
    is_templated,
    values_path,
)
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, mapping, sequence
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.gitops_check.yaml_stream import BadStream, documents

_RANGE = re.compile(r"[*^~<>|=\s]|(^|\.)[xX](\.|$)|^v?\d+(\.\d+)?$|^latest$|^$")
"""Forms of chart versions that stand for several: operators, wildcards, and versions with less than three parts."""
_BRANCHES = frozenset({"main", "master", "develop", "dev", "trunk", "staging", "production", "prod"})
_KINDS = {
    **{
        kind.lower(): kind for kind in ("NodeSet", "NodeSlice", "SlurmCluster", "LoginSet", "Controller", "Deployment", "DaemonSet")
    },
    **{
        kind.lower(): kind
        for kind in ("StatefulSet", "ConfigMap", "Secret", "Service", "Job", "CronJob", "HorizontalPodAutoscaler")
    },
    **{
        kind.lower(): kind
        for kind in ("ClusterPolicy", "NicClusterPolicy", "MySQLCluster", "ServiceAccount", "PersistentVolumeClaim")
    },
}
"""Kind in small letters → its spelling in the API, which Argo CD compares exactly."""
_PATHS = ("jsonPointers", "jqPathExpressions", "managedFieldsManagers")


def floats(version: str) -> bool:
    """Return True if a chart version stands for several versions."""
    return bool(_RANGE.search(version.strip()))


def source_findings(tree: DeliveryTree, delivered: Iterable[DeliveredApplication]) -> Iterator[GitopsFinding]:
    """Yield findings about the sources of Applications: what they point to, and how firmly."""
    for application in delivered:
        single, several = application.spec.get("source"), sequence(application.spec.get("sources"))
        if single and several:
            words = f"Application {application.name} has source and sources, and Argo CD ignores source"
            yield finding("source-missing", application.where("source"), words, "keep one of the two")
        for source in application.sources:
            yield from _revision(application, source)
            yield from _repository(application, source)
            yield from _presence(tree, application, source)


def _revision(application: DeliveredApplication, source: ApplicationSource) -> Iterator[GitopsFinding]:
    revision, where = source.text("targetRevision"), application.manifest.where(*source.at, "targetRevision")
    if is_templated(revision):
        return
    if source.text("chart"):
        if floats(revision):
            words = f"Application {application.name} takes whatever chart {source.text('chart')} is newest"
            fix = "write one exact version, such as 7.3.0"
            yield finding("revision-floats", where, words, fix, value=revision or "(none)")
    elif revision in ("", "HEAD", "*") or re.search(r"[*^~<>|]|\.x$", revision):
        words = f"Application {application.name} follows {revision or 'HEAD'}, so Git does not say what runs"
        fix = "write a tag or a commit; a change is then a commit that can be reviewed and taken back"
        yield finding("revision-floats", where, words, fix, value=revision or "(none)")
    elif revision in _BRANCHES:
        words = f"Application {application.name} follows branch {revision}: whoever may push there changes the cluster"
        yield finding("revision-floats", where, words, "write a tag or a commit", value=revision, severity="warning")


def _repository(application: DeliveredApplication, source: ApplicationSource) -> Iterator[GitopsFinding]:
    address = source.text("repoURL")
    if address.startswith(("http://", "git://")):
        where, words = application.manifest.where(*source.at, "repoURL"), "anyone on the way may change what it answers"
        yield finding(
            "insecure-repository", where, f"the repository is read without TLS, so {words}", "use https or ssh", value=address
        )


def _presence(tree: DeliveryTree, application: DeliveredApplication, source: ApplicationSource) -> Iterator[GitopsFinding]:
    path = source.text("path")
    if is_templated(path) or is_templated(source.text("repoURL")):
        return
    folder = tree.folder_of(path) if path else None
    if path and folder is not None:
        yield from _applied_files(tree, application, source, folder)
    if path and folder is None:
        return  # `outside_sources` tells about it
    ignores_missing = source.helm.get("ignoreMissingValueFiles") is True
    for number, name in enumerate(map(str, sequence(source.helm.get("valueFiles")))):
        is_elsewhere = name.startswith(("http://", "https://")) or is_templated(name) or (not path and not name.startswith("$"))
        if not ignores_missing and not is_elsewhere and tree.file_of(values_path(source, name)) is None:
            where = application.manifest.where(*source.at, "helm", "valueFiles", number)
            words = f"Application {application.name} reads a file of values that is not in this tree"
            yield finding("source-missing", where, words, "add the file, or correct its path from the chart's folder", value=name)
    text = source.helm.get("values")
    if isinstance(text, str):
        try:
            documents(text)
        except BadStream as problem:
            where = application.manifest.where(*source.at, "helm", "values")
            yield finding("yaml-invalid", where, f"helm.values is not readable: {problem.problem}", "use valuesObject")


def _applied_files(
    tree: DeliveryTree, application: DeliveredApplication, source: ApplicationSource, folder: str
) -> Iterator[GitopsFinding]:
    if folder in tree.charts or folder in tree.kustomizations or source.data.get("plugin"):
        return
    prefix = f"{folder}/" if folder else ""
    below = [path.removeprefix(prefix) for path in tree.below(folder) if path in tree.by_path]
    where = application.manifest.where(*source.at, "path")
    if not below:
        words = f"Application {application.name} applies a folder without manifests"
        yield finding("nothing-to-apply", where, words, "correct the path, or add the manifests", value=source.text("path"))
    elif all("/" in name for name in below) and mapping(source.data.get("directory")).get("recurse") is not True:
        words = f"Application {application.name} applies nothing: the manifests lie in subfolders, which Argo CD does not read"
        yield finding(
            "nothing-to-apply", where, words, "set directory.recurse: true, or name the subfolder", value=source.text("path")
        )


def outside_sources(tree: DeliveryTree, delivered: Iterable[DeliveredApplication]) -> Iterator[GitopsFinding | UncheckedPart]:
    """Yield a finding for each path that this repository lacks, and an unchecked part for paths of other repositories."""
    sources = [(application, source) for application in delivered for source in application.sources if source.text("path")]
    plain = [pair for pair in sources if not is_templated(pair[1].text("path"))]
    ours = {source.text("repoURL") for _, source in plain if tree.folder_of(source.text("path")) is not None}
    for application, source in plain:
        path = source.text("path")
        if source.text("chart") or tree.folder_of(path) is not None:
            continue
        if source.text("repoURL") in ours:
            words = f"Application {application.name} names a folder that is not in this tree"
            where = application.manifest.where(*source.at, "path")
            yield finding("source-missing", where, words, "correct the path from the root of the repository", value=path)
        else:
            yield UncheckedPart(application.manifest.path, f"path {path} of Application {application.name} is not in this folder")


# ---- comparison -----------------------------------------------------------------------------------------------------------------


def comparison_findings(delivered: Iterable[DeliveredApplication]) -> Iterator[GitopsFinding]:
    """Yield findings about ignoreDifferences: entries that match nothing, and fields that a sync writes back all the same."""
    for application in delivered:
        if application.ignored and "RespectIgnoreDifferences=true" not in application.options:
            words = f"a sync of Application {application.name} writes the ignored fields back to what Git has"
            fix = "add RespectIgnoreDifferences=true to syncPolicy.syncOptions"
            yield finding("ignore-not-respected", application.where("ignoreDifferences"), words, fix)
        for number, entry in enumerate(application.ignored):
            yield from _ignored_entry(application, number, entry)


def _ignored_entry(application: DeliveredApplication, number: int, entry: Any) -> Iterator[GitopsFinding]:
    kind = str(entry.get("kind") or "")
    spelt = _KINDS.get(kind.lower(), kind)
    where = application.where("ignoreDifferences", number, "kind")
    if kind != spelt:
        words = f"kind {kind} does not exist, so Application {application.name} ignores nothing by this entry"
        yield finding("ignore-matches-nothing", where, words, f"write {spelt}, as in the API", value=kind)
    if not any(sequence(entry.get(key)) for key in _PATHS):
        words = "the entry names no field"
        yield finding("ignore-matches-nothing", where, words, f"add one of {', '.join(_PATHS)}")
    for pointer in map(str, sequence(entry.get("jsonPointers"))):
        if not pointer.startswith("/"):
            words = "a JSON pointer begins with a slash, and this one matches nothing"
            yield finding("ignore-matches-nothing", where, words, f"write /{pointer.strip('.').replace('.', '/')}", value=pointer)
    namespace = str(entry.get("namespace") or "")
    if namespace and application.namespace and namespace != application.namespace and not is_templated(namespace):
        words = f"the entry is for namespace {namespace}, and the Application writes to {application.namespace}"
        fix = "correct the namespace, or leave it out"
        yield finding("ignore-matches-nothing", where, words, fix, value=namespace, severity="warning")


# ---- projects -------------------------------------------------------------------------------------------------------------------


def project_findings(tree: DeliveryTree, delivered: Iterable[DeliveredApplication]) -> Iterator[GitopsFinding]:
    """Yield findings about Applications whose AppProject of this tree does not allow their sources or destination."""
    projects = {entry.name: entry for entry in tree.all_manifests() if entry.kind == "AppProject"}
    for application in delivered:
        project = projects.get(str(application.spec.get("project") or ""))
        if project is None:
            continue
        allowed = list(map(str, sequence(project.spec.get("sourceRepos"))))
        for source in application.sources:
            address = source.text("repoURL")
            if not is_templated(address) and not _is_allowed(address, allowed):
                where = application.manifest.where(*source.at, "repoURL")
                words = f"AppProject {project.name} does not allow the repository of Application {application.name}"
                yield finding("project-forbids", where, words, f"add it to sourceRepos in {project.path}", value=address)
        if not _is_destination(application, project):
            words = f"AppProject {project.name} does not allow the destination of Application {application.name}"
            fix = f"add it to destinations in {project.path}"
            yield finding("project-forbids", application.where("destination"), words, fix, value=application.namespace)


def _is_allowed(text: str, patterns: Iterable[str]) -> bool:
    """Return True if a text fits the patterns of an AppProject: any, and none that begins with an exclamation mark."""
    listed = list(patterns)
    if any(pattern.startswith("!") and fnmatchcase(text, pattern[1:]) for pattern in listed):
        return False
    bare = text.removesuffix(".git")
    return any(fnmatchcase(text, pattern) or fnmatchcase(bare, pattern.removesuffix(".git")) for pattern in listed)


def _is_destination(application: DeliveredApplication, project: DeliveredObject) -> bool:
    place = mapping(application.spec.get("destination"))
    if is_templated(f"{application.namespace}{application.cluster}"):
        return True
    for entry in map(mapping, sequence(project.spec.get("destinations"))):
        names_cluster = (("server", place.get("server")), ("name", place.get("name")))
        fits_cluster = any(value and fnmatchcase(str(value), str(entry.get(key) or "")) for key, value in names_cluster)
        if fits_cluster and (not application.namespace or fnmatchcase(application.namespace, str(entry.get("namespace") or ""))):
            return True
    return False
