"""Load text or a file into a frozen spec, or raise all its errors at once.

The order: size and YAML (`document`), secrets written out (`secrecy`), the models (pydantic), then rules between sections
(`structure`). These rules run over every section that is valid itself, so one typo hides no other error.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from workflows.spec import roles, secrecy, structure, validation_errors
from workflows.spec.cluster_spec import ClusterSpec
from workflows.spec.document import LARGEST_BYTES, BadDocument, YamlDocument, parse
from workflows.spec.editor_schema import KINDS
from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.validation_errors import BROKEN, line_of, similar_key, translate

MOST_ERRORS = 50
"""Largest number of errors that are shown; one more sentence says how many others there are."""
MOST_WORDED = 4 * MOST_ERRORS
"""Largest number of validation errors that are put into words; there are spares, since some of them only follow from others."""

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

Model = TypeVar("Model", bound=BaseModel)


def load(source: Path | str) -> ClusterSpec:
    """Load `cluster.yaml` from a path, or from a `str` that has a line break.

    Raises:
        SpecErrors: every error of the file (exit code 64).
    """
    name, document = read(source)
    if isinstance(document.kind, str) and document.kind not in KINDS:
        problem = SpecError("kind", "this kind of spec is unknown", f"write one of {', '.join(KINDS)}", f'"{document.kind}"')
        raise SpecErrors(name, [replace(problem, line=line_of("kind", document))])
    errors, spec, unworded = _validate(ClusterSpec, document)
    sound = spec if spec is not None else _sound_sections(document, errors)
    of_models = _broken(errors)
    if sound is not None:
        # relative paths start from the spec's folder; from the current one for text without a file
        is_text = isinstance(source, str) and "\n" in source
        folder = Path() if is_text or not Path(source).is_file() else Path(source).parent
        further = [*structure.check(sound, of_models), *roles.attach(sound.roles, folder)]
        errors.extend(replace(error, line=line_of(error.path, document)) for error in further)
    if errors or spec is None:
        broken = _broken(errors) & _SECTIONS
        fields = {error.path for error in errors} if sound is not None else set()
        marked = sound and _marked(sound, broken, _single_fields(sound, fields, of_models))
        raise SpecErrors(name, cut(errors, unworded), sound=marked, broken=broken)
    return spec


def load_as(model: type[Model], source: Path | str) -> Model:
    """Load a spec of another kind (`factory.yaml`, `stack.yaml`, `image.yaml`). Raises `SpecErrors` with all its errors."""
    name, document = read(source)
    return validate_document(model, name, document)


def validate_document(model: type[Model], name: str, document: YamlDocument) -> Model:
    """Return a parsed document as a model. Raises `SpecErrors` with all its errors."""
    errors, spec, unworded = _validate(model, document)
    if errors or spec is None:
        raise SpecErrors(name, cut(errors, unworded))
    return spec


def read(source: Path | str) -> tuple[str, YamlDocument]:
    """Return the name that errors use for a source, and its parsed document.

    Raises `SpecErrors` if it is unreadable or no mapping.
    """
    name, text = _text(source)
    try:
        document = parse(text)
    except BadDocument as bad:
        raise SpecErrors(name, cut(bad.errors)) from bad
    if not isinstance(document.data, dict):
        raise SpecErrors(name, [SpecError("", "the file holds no keys", "start it with apiVersion: bringup/v1")])
    return name, document


def _text(source: Path | str) -> tuple[str, str]:
    if isinstance(source, str) and "\n" in source:
        return "spec", source
    path = Path(source)
    name = path.name or str(source)
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_BYTES + 1)
        return name, raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SpecErrors(name, [SpecError("", "the file is not UTF-8 text", "save it as UTF-8")]) from error
    except OSError as error:
        reason = error.strerror or "unreadable"
        raise SpecErrors(name, [SpecError("", f"cannot read {source}: {reason}", "give the path of a spec file")]) from error


def _validate(model: type[Model], document: YamlDocument) -> tuple[list[SpecError], Model | None, int]:
    """Return the errors of a document, the model if it has none, and how many further errors were not put into words.

    Each unknown key costs a search for similar ones, so a file with tens of thousands of them would take half a minute.
    """
    errors = secrecy.literals(document.data, document.lines)
    try:
        return errors, model.model_validate(document.data), 0
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=True)
        details += validation_errors.findings(model, document.data, details)
        known = {literal.path for literal in errors}
        worded, unworded = details[:MOST_WORDED], max(len(details) - MOST_WORDED, 0)
        translated = (error for error in translate(model, worded, document) if error.path not in known)
        return [*errors, *translated], None, unworded


def _sound_sections(document: YamlDocument, errors: list[SpecError]) -> ClusterSpec | None:
    """Return a spec of the valid sections, with defaults or fillers for the others; None if it is not valid even so.

    Rules that read the other sections are skipped.
    """
    bad = _broken(errors)
    data = document.data if isinstance(document.data, dict) else {}
    good = {key: value for key, value in data.items() if key not in bad}
    try:
        return ClusterSpec.model_validate(_FILLER | good)
    except ValidationError:
        return None


def _single_fields(sound: ClusterSpec, paths: set[str], of_models: set[str]) -> dict[str, set[str]]:
    """Return section → its fields at fault, for sections that are valid themselves and break only rules between sections."""
    fields: dict[str, set[str]] = {}
    whole = set(of_models)
    for section, _, field in (path.partition(".") for path in paths):
        known = getattr(type(getattr(sound, section, None)), "model_fields", {})
        if field in known:
            fields.setdefault(section, set()).add(field)
        else:
            whole.add(section)
    return {section: names for section, names in fields.items() if section not in whole}


def _marked(sound: ClusterSpec, broken: set[str], fields: dict[str, set[str]]) -> ClusterSpec:
    """Return the spec with stand-ins for its broken sections or fields, so that compatibility rules about them are skipped."""
    update = dict.fromkeys(broken, BROKEN)
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


def cut(errors: list[SpecError], unworded: int = 0) -> list[SpecError]:
    """Return the errors that are shown, and a last one with the number of all others; `unworded` are further ones."""
    more = max(len(errors) - MOST_ERRORS, 0) + unworded
    if not more:
        return errors
    return [*errors[:MOST_ERRORS], SpecError("", f"and {more} more errors", "fix these first", line=1 << 30)]
