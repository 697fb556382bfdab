"""Load text or a file into a frozen spec of any kind, or raise all its errors at once.

The order: size and YAML (`document`), secrets written out (`secrecy`), the models (pydantic). Specs of clusters have more checks
(`cluster_loading`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from workflows.spec.errors import SpecError, SpecErrors
from workflows.spec.parsing import secrecy, validation_errors
from workflows.spec.parsing.document import LARGEST_BYTES, BadDocument, YamlDocument, parse
from workflows.spec.parsing.validation_errors import translate

MOST_ERRORS = 50
"""Largest number of errors that are shown; one more sentence says how many others there are."""
MOST_WORDED = 4 * MOST_ERRORS
"""Largest number of validation errors that are put into words; there are spares, since some of them only follow from others."""

Model = TypeVar("Model", bound=BaseModel)


def load_as(model: type[Model], source: Path | str) -> Model:
    """Load a spec of another kind (`factory.yaml`, `stack.yaml`, `image.yaml`). Raises `SpecErrors` with all its errors."""
    name, document = read(source)
    return validate_document(model, name, document)


def validate_document(model: type[Model], name: str, document: YamlDocument) -> Model:
    """Return a parsed document as a model. Raises `SpecErrors` with all its errors."""
    errors, spec, unworded = validate_model(model, document)
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


def validate_model(model: type[Model], document: YamlDocument) -> tuple[list[SpecError], Model | None, int]:
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


def cut(errors: list[SpecError], unworded: int = 0) -> list[SpecError]:
    """Return the errors that are shown, and a last one with the number of all others; `unworded` are further ones."""
    more = max(len(errors) - MOST_ERRORS, 0) + unworded
    if not more:
        return errors
    return [*errors[:MOST_ERRORS], SpecError("", f"and {more} more errors", "fix these first", line=1 << 30)]
