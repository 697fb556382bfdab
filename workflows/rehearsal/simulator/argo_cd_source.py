"""Git sources of the simulated Argo CD: revisions, the Applications of a stage's folder, and the values of a chart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from steps.clients.git import repositories
from steps.clients.git.access import GitAccess, local_repository
from workflows.rehearsal.simulator.api_kinds import Obj

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
GENERATION = "Failed to load target state: failed to generate manifest for source 1 of {of}: rpc error: code = Unknown desc = {why}"
"""Wording of the application controller for a failure of the repo server (`steps/docs/facts/argo.md`, Application status)."""


class SourceError(Exception):
    """A target state that cannot be generated; the text is that of a ComparisonError."""

    def __init__(self, why: str, sources: int = 1) -> None:
        super().__init__(GENERATION.format(of=sources, why=why))


class Repositories:
    """The bare repositories of a rehearsal. A revision is resolved once: only a fault moves a tag."""

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._commits: dict[tuple[str, str], str] = {}
        self._files: dict[tuple[str, str], Mapping[str, str]] = {}

    def commit(self, url: str, revision: str) -> str:
        """Return the commit of a revision. Raises SourceError if the repository lacks it."""
        if (url, revision) not in self._commits:
            with repositories.opened(self._access(url)) as repo:
                commit = repo.resolve(revision)
            if not commit:
                raise SourceError(f"unable to resolve '{revision}' to a commit SHA")
            self._commits[url, revision] = commit
        return self._commits[url, revision]

    def files(self, url: str, commit: str) -> Mapping[str, str]:
        """Return all files of a commit."""
        if (url, commit) not in self._files:
            with repositories.opened(self._access(url)) as repo:
                self._files[url, commit] = repo.read(commit)
        return self._files[url, commit]

    def _access(self, url: str) -> GitAccess:
        if self._root is None:
            raise SourceError(f"failed to list refs: {url}: this rehearsal has no repositories")
        return GitAccess(url=url, local=local_repository(self._root, url))


def applications(files: Mapping[str, str], path: str) -> Iterator[Obj]:
    """Yield the Applications of a folder's kustomization in order. Only `resources` are played, not patches.

    Raises SourceError.
    """
    folder = path.strip("/")
    kustomization = files.get(f"{folder}/kustomization.yaml")
    if kustomization is None:
        raise SourceError(f"{folder}: app path does not exist")
    for name in _parsed(kustomization).get("resources") or ():
        text = files.get(f"{folder}/{name}")
        if text is None:
            raise SourceError(
                f"`kustomize build {folder}` failed exit status 1: accumulating resources from '{name}': no such file"
            )
        yield _parsed(text)


def values(files: Mapping[str, str], helm: Mapping[str, Any]) -> dict[str, Any]:
    """Merge a chart's values: files below `$values` in order, then `valuesObject`. Raises SourceError."""
    merged: dict[str, Any] = {}
    for name in helm.get("valueFiles") or ():
        path = str(name).partition("/")[2]
        if path not in files:
            raise SourceError(f"failed to execute helm template command: open {path}: no such file or directory", 2)
        merged |= _parsed(files[path])
    return merged | (helm.get("valuesObject") or {})


def _parsed(text: str) -> dict[str, Any]:
    try:
        document = yaml.load(text, Loader=LOADER)
    except yaml.YAMLError as error:
        raise SourceError(f"failed to unmarshal manifests: {error}") from error
    return document if isinstance(document, dict) else {}
