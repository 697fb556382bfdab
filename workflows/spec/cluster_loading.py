"""Load the spec of a cluster, or raise all its errors at once.

After what holds for every kind of spec (`loading`) come the rules between sections (`structure`). They run over every section that
is valid itself, so one typo hides no other error.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from workflows.spec import structure
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.editor_schema import KINDS
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.parsing.document import YamlDocument
from workflows.spec.parsing.loading import cut, read, validate_model
from workflows.spec.parsing.validation_errors import BROKEN, line_of, similar_key
from workflows.spec.sections import roles

_FILLER = {
    "apiVersion": "bringup/v1",
    "kind": "Cluster",
    "name": "x",
    "owner": "x",
    "revision": "x",
    "hosts": {"x": {"role": "server", "ranges": "x"}},
}
"""Stand-in for invalid required sections, so that the valid ones can be checked against each other."""

_SECTIONS = frozenset(ClusterSpec.model_fields) - {"api_version", "kind", "name", "owner", "revision", "site"}
"""Keys of a spec that hold more than a name, which nothing else depends on."""


def load(source: Path | str) -> ClusterSpec:
    """Load `cluster.yaml` from a path, or from a `str` that has a line break.

    Raises:
        SpecErrors: every error of the file (exit code 64).
    """
    name, document = read(source)
    if isinstance(document.kind, str) and document.kind not in KINDS:
        problem = SpecError("kind", "this kind of spec is unknown", f"write one of {', '.join(KINDS)}", f'"{document.kind}"')
        raise SpecErrors(name, [replace(problem, line=line_of("kind", document))])
    errors, spec, unworded = validate_model(ClusterSpec, document)
    of_models = _broken(errors)
    partial = _partial_sections(document, errors)
    sound = spec if spec is not None else _sound_sections(document, errors, partial)
    if sound is not None:
        # relative paths start from the spec's folder; from the current one for text without a file
        is_text = isinstance(source, str) and "\n" in source
        folder = Path() if is_text or not Path(source).is_file() else Path(source).parent
        further = [*structure.check(sound, of_models), *roles.attach(sound.roles, folder)]
        errors.extend(replace(error, line=line_of(error.path, document)) for error in further)
    if errors or spec is None:
        broken = _broken(errors) & _SECTIONS
        fields = {error.path for error in errors} if sound is not None else set()
        marked = sound and _marked(sound, broken, _single_fields(sound, fields, of_models, set(partial)))
        raise SpecErrors(name, cut(errors, unworded), sound=marked, broken=broken)
    return spec


def _partial_sections(document: YamlDocument, errors: list[SpecError]) -> dict[str, Any]:
    """Return the sections with errors in some of their keys, without these keys, if the rest is valid: a typo hides no other error.

    Hosts are left out, because counts and networks of some groups would mislead the rules.
    """
    data, partial = document.data if isinstance(document.data, dict) else {}, {}
    for section in (_broken(errors) & _SECTIONS & set(data)) - {"hosts"}:
        paths = [error.path.split(".") for error in errors if _broken([error]) == {section}]
        rest = data[section]
        if not isinstance(rest, dict) or not all(len(path) > 1 and path[0] == section for path in paths):
            continue
        for _, key, *below in paths:
            key = key.partition("[")[0]
            inner = rest.get(key)
            # in a mapping of overrides the other fields of a component still count
            if section == "overrides" and below and isinstance(inner, dict):
                rest = rest | {key: {name: value for name, value in inner.items() if name != below[0]}}
            else:
                rest = {name: value for name, value in rest.items() if name != key}
        try:
            TypeAdapter(ClusterSpec.model_fields[section].rebuild_annotation()).validate_python(rest)
        except ValidationError:
            continue
        partial[section] = rest
    return partial


def _sound_sections(document: YamlDocument, errors: list[SpecError], partial: dict[str, Any]) -> ClusterSpec | None:
    """Return a spec of the valid sections, with defaults or fillers for the others; None if it is not valid even so.

    Rules that read the other sections are skipped. Of `partial` sections the valid keys are taken.
    """
    bad = _broken(errors)
    data = document.data if isinstance(document.data, dict) else {}
    good = {key: value for key, value in data.items() if key not in bad} | partial
    try:
        return ClusterSpec.model_validate(_FILLER | good)
    except ValidationError:
        return None


def _single_fields(sound: ClusterSpec, paths: set[str], of_models: set[str], partial: set[str]) -> dict[str, set[str]]:
    """Return section → its fields at fault, for sections that are valid otherwise.

    They break only rules between sections, or are `partial`, where an unknown key puts the field in doubt that it resembles.
    """
    fields: dict[str, set[str]] = {}
    whole = of_models - partial
    for section, _, below in (path.partition(".") for path in paths):
        owner: Any = type(getattr(sound, section, None))
        known, field = getattr(owner, "model_fields", {}), re.split(r"[.\[]", below)[0]
        if field not in known and section in partial and known:
            field = similar_key(owner, (field,))
        if field in known:
            fields.setdefault(section, set()).add(field)
        elif field or section not in partial:
            whole.add(section)
    return {section: names for section, names in fields.items() if section not in whole} | {
        section: set() for section in partial - whole - set(fields) if hasattr(type(getattr(sound, section)), "model_fields")
    }


def _marked(sound: ClusterSpec, broken: set[str], fields: dict[str, set[str]]) -> ClusterSpec:
    """Return the spec with stand-ins for its broken sections or fields, so that compatibility rules about them are skipped."""
    update = dict.fromkeys(broken - {"overrides"}, BROKEN)  # valid overrides are compared with their charts
    for section, names in fields.items():
        update[section] = getattr(sound, section).model_copy(update=dict.fromkeys(names, BROKEN))
    marked = sound.model_copy(update=update)
    marked.__dict__.pop("machines", None)  # computed from hosts and accelerator, which may be broken now
    if "accelerator" in broken and "hosts" not in broken:  # all but the number of GPUs is known of each machine
        marked.__dict__["machines"] = tuple(replace(machine, gpus=BROKEN) for machine in sound.machines)
    return marked


def _broken(errors: list[SpecError]) -> set[str]:
    """Return the names of sections with errors. If a name is unknown, the section that it resembles is one of them."""
    named = {error.path.split(".", 1)[0].split("[", 1)[0] for error in errors}
    return named | {similar_key(ClusterSpec, (name,)) for name in named}
