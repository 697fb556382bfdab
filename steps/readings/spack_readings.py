"""Readings of Spack's environment files: spack.lock of lock file versions 1 to 7, and spack.yaml.

Versions 1 and 2 keep a specification below its package's name, version 3 names hashes `build_hash`, later ones `hash` (Spack's
lib/spack/spack/environment/environment.py).
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from steps.contract.plain_text import count
from steps.contract.verdict import FailureClass
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, passed, undecided

LOCK, ENVIRONMENT, DATA = "spack-lock", "spack-environment", "spack-data"
SUPPORTED = (4, 5, 6, 7)
_INPUT = FailureClass.INPUT
_KEYS = frozenset(
    {"specs", "view", "concretizer", "concretization", "packages", "config", "mirrors", "repos", "modules", "compilers", "develop",
     "definitions", "include", "include_concrete", "upstreams", "bootstrap", "ci", "gitlab-ci", "cdash", "container", "env_vars",
     "toolchains", "deprecated", "group", "loadable", "env"}
)  # fmt: skip
"""Keys below `spack:` of any release since 0.13 (lib/spack/spack/schema/env.py)."""


def is_lock(document: Any) -> bool:
    """Return True for a spack.lock."""
    meta = document.get("_meta") if isinstance(document, dict) else None
    return isinstance(meta, dict) and meta.get("file-type") == "spack-lockfile"


def read_lock(_: CapturedText, documents: list[Any], site: SiteValues) -> ToolReading:
    """Return the reading of a lock file: its version is supported, and every hash that it names is in it."""
    document = documents[0]
    meta, spack = document["_meta"], document.get("spack")
    specs = dict(_specs(document.get("concrete_specs")))
    roots = _maps(document.get("roots"))
    links = [link for spec in specs.values() for link in _dependencies(spec)]
    version = meta.get("lockfile-version")
    figures: dict[str, Any] = {
        "lockfile_version": version,
        "specfile_version": meta.get("specfile-version"),
        "spack_version": spack.get("version") if isinstance(spack, dict) else None,
        "roots": len(roots),
        "concrete_specs": len(specs),
        "externals": sum(bool(spec.get("external")) for spec in specs.values()),
        "distinct_names": len({spec.get("name") for spec in specs.values()}),
        "platforms": sorted(_platforms(specs)),
        "missing_dependency_hashes": sum(target not in specs for _, target in links),
        "roots_missing": sum(root.get("hash") not in specs for root in roots),
        "dependency_hash_keys": dict(Counter(key for key, _ in links)),
    }
    supported = site.lockfile_versions or SUPPORTED
    if version not in supported:
        step = f"concretize again with a Spack that writes one of {', '.join(map(str, supported))}"
        return failed(LOCK, _INPUT, f"lockfile version {version} is not supported", figures, next_step=step)
    if missing := figures["missing_dependency_hashes"] + figures["roots_missing"]:
        return failed(LOCK, _INPUT, f"{count(missing, 'hash')} named and not in the lock".replace("hashs", "hashes"), figures)
    if not roots or not specs:
        return undecided(LOCK, "the lock has no root or no specification", figures)
    return passed(LOCK, figures, f"{count(len(roots), 'root')}, {count(len(specs), 'specification')}, all hashes there")


def _specs(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, spec in (value if isinstance(value, dict) else {}).items():
        if not isinstance(spec, dict):
            continue
        if "name" in spec:
            yield key, spec
        else:
            name, body = next(iter(spec.items()), ("", None))
            yield key, {**body, "name": name} if isinstance(body, dict) else {"name": name}


def _dependencies(spec: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield for each dependency the key under which its hash stands, and the hash."""
    links = spec.get("dependencies")
    for link in links.values() if isinstance(links, dict) else _maps(links):
        if isinstance(link, dict):
            key = "hash" if "hash" in link else "build_hash"
            yield key, str(link.get(key, ""))


def _platforms(specs: dict[str, dict[str, Any]]) -> set[str]:
    architectures = (spec.get("arch") for spec in specs.values())
    names = (arch.get("platform") for arch in architectures if isinstance(arch, dict))
    # versions 1 and 2 nest a specification, whose architecture is not read
    return {name for name in names if isinstance(name, str)} if _is_flat(specs) else set()


def _is_flat(specs: dict[str, dict[str, Any]]) -> bool:
    return all(not isinstance(spec.get("dependencies"), dict) for spec in specs.values())


def _maps(value: Any) -> list[dict[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def is_environment(document: Any) -> bool:
    """Return True for a spack.yaml."""
    return isinstance(document, dict) and ("spack" in document or "env" in document) and len(document) <= 2


def is_data(documents: list[Any]) -> bool:
    """Return True for JSON of Spack's commands, or of a build cache in a registry."""
    return len(documents) == 1 and bool(_data_figures(documents[0]))


def read_data(_: CapturedText, documents: list[Any], __: SiteValues) -> ToolReading:
    """Return the reading of such JSON, which is whole if it can be parsed; it holds no other question."""
    figures = _data_figures(documents[0])
    return passed(DATA, figures, ", ".join(f"{name} {value}" for name, value in figures.items()))


def _data_figures(document: Any) -> dict[str, Any]:
    """Return the counts of a list of specs, one spec, the times of an install, an index, tags or a manifest; empty for others."""
    if isinstance(document, list):
        is_specs = all(isinstance(spec, dict) and {"name", "version", "hash"} <= spec.keys() for spec in document)
        return {"specs": len(document)} if document and is_specs else {}
    if not isinstance(document, dict):
        return {}
    spec, database, phases = document.get("spec"), document.get("database"), document.get("phases")
    if isinstance(spec, dict) and isinstance(spec.get("nodes"), list):
        return {"nodes": len(spec["nodes"])}
    if isinstance(database, dict) and isinstance(database.get("installs"), dict):
        return {"installs": len(database["installs"])}
    if isinstance(phases, list) and isinstance(document.get("total"), int | float):
        return {"total_s": round(document["total"], 1), "phases": len(phases)}
    if isinstance(document.get("tags"), list) and isinstance(document.get("name"), str):
        return {"tags": len(document["tags"])}
    is_manifest = document.get("schemaVersion") == 2 and isinstance(document.get("layers"), list)
    return {"layers": len(document["layers"])} if is_manifest else {}


def is_broken_environment(text: str) -> bool:
    """Return True for a spack.yaml that is no YAML: its first line of content is `spack:`."""
    lines = (line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    return next(lines, "").rstrip() == "spack:"


def read_broken_environment(_: CapturedText, __: SiteValues) -> ToolReading:
    """Return the reading of a spack.yaml that cannot be parsed."""
    return failed(ENVIRONMENT, _INPUT, "not YAML", {}, next_step="correct it, or capture the whole file")


def read_environment(captured: CapturedText, documents: list[Any], _: SiteValues) -> ToolReading:
    """Return the reading of a spack.yaml: known keys and a list of specs. Only Spack can tell if they are satisfiable."""
    body = documents[0].get("spack", documents[0].get("env"))
    body = body if isinstance(body, dict) else {}
    unknown = [key for key in body if key.removesuffix(":") not in _KEYS]
    specs = body.get("specs", [] if "definitions" in body or "include_concrete" in body else None)
    figures: dict[str, Any] = {"keys": list(body), "specs": len(specs) if isinstance(specs, list) else None}
    problems = [f"unknown key {', '.join(map(str, unknown[:5]))}"] if unknown else []
    problems += ["specs not a list"] if specs is not None and not isinstance(specs, list) else []
    if problems:
        return failed(ENVIRONMENT, _INPUT, "; ".join(problems), figures, next_step="see Spack's documentation of spack.yaml")
    if not body or specs is None:
        return undecided(ENVIRONMENT, "the environment has no specs, or the file is cut", figures)
    last = next(reversed(body), "")
    if any(value is None for value in body.values()):
        return undecided(ENVIRONMENT, "a section is empty: the file may be cut", figures)
    # half a name of a repository fails in Spack, half of anything else may be another thing
    if not captured.ends_with_line and last not in ("repos", "include"):
        return undecided(ENVIRONMENT, "the last line has no end: the file may be cut", figures)
    return passed(ENVIRONMENT, figures, f"{count(len(specs), 'spec')}, known keys")
