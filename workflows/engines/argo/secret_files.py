"""The secrets of a run: those of this machine go along, those of home must be there; all that are missing are named at once."""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from steps.errors import Refused
from workflows.engines import inputs
from workflows.engines.argo.home import Home
from workflows.engines.inputs import SecretMissing
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec
from workflows.spec.fields import SecretKey
from workflows.stages.access import SecretFile


class ElsewhereInHome(ValueError):
    """The spec names a Secret in a namespace whose Secrets the run's pods cannot mount."""

    hint = "copy it into the namespace of the runs and leave `namespace` out, or choose that namespace with --namespace"


class _Secret(Struct, frozen=True):
    data: dict[str, str] = {}


def check_namespaces(spec: ClusterSpec, home: Home) -> None:
    """Raise ElsewhereInHome where a reference names another namespace than that of the runs."""
    others = [one for one in _references(spec) if one.namespace not in (None, home.namespace)]
    if others:
        named = ", ".join(dict.fromkeys(f"{one.namespace}/{one.name}" for one in others))
        raise ElsewhereInHome(f"the spec names Secret {named}, but runs in namespace {home.namespace} have Secrets of that alone")


def _references(value: Any) -> Iterator[SecretKey]:
    if isinstance(value, SecretKey):
        yield value
    elif isinstance(value, BaseModel):
        yield from _references([getattr(value, name) for name in type(value).model_fields])
    elif isinstance(value, Mapping):
        yield from _references(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _references(item)


def gathered(home: Home, plan: Plan, spec_folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """The secrets that come from this machine's files and variables, by name, once those of home are known to be there.

    Raises SecretMissing naming all that are missing here or there, or unusable; what this person may not read in home is left to
    the pods.
    """
    missing, hint, contents = list(_missing(home, plan)), "", dict[str, bytes]()
    try:
        contents = inputs.gathered([file for file in plan.secrets if not file.secret], spec_folder, environ)
    except SecretMissing as error:
        missing.insert(0, str(error))
        hint = error.hint
    if missing:
        raise SecretMissing("; ".join(missing), hint)
    return contents


def fetched(home: Home, file: SecretFile) -> bytes:
    """The content of one that home has. Raises SecretMissing where it has not, or where this person may not read it."""
    try:
        found = _read(home, file.secret)
    except Refused as error:
        said = f"secret {file.name}: Secret {file.secret} in namespace {home.namespace} of the home cluster: {error}"
        raise SecretMissing(said) from error
    if lacking := _lacking(home, file, found):
        raise SecretMissing(lacking)
    return inputs.usable(file, base64.b64decode(found.data[file.key] if found else ""))


def _missing(home: Home, plan: Plan) -> Iterator[str]:
    """A sentence for each that home should have and has not, or not in a form that the run could use."""
    for file in plan.secrets:
        if not file.secret:
            continue
        try:
            found = _read(home, file.secret)
        except Refused:
            continue  # who submits need not be able to read secrets
        if lacking := _lacking(home, file, found):
            yield lacking
        elif found is not None:
            yield from _unusable(file, found.data[file.key])


def _lacking(home: Home, file: SecretFile, found: _Secret | None) -> str:
    """What home has not of it; empty where it has it."""
    if found is None:
        return f"secret {file.name}: namespace {home.namespace} of the home cluster has no Secret {file.secret}"
    if file.key not in found.data:
        return f"secret {file.name}: Secret {file.secret} of the home cluster has no key {file.key}"
    return ""


def _unusable(file: SecretFile, data: str) -> Iterator[str]:
    """A sentence for one whose content, in base64, the run could not use."""
    try:
        inputs.usable(file, base64.b64decode(data))
    except SecretMissing as error:
        yield f"Secret {file.secret} of the home cluster, key {file.key}: {error}"


def _read(home: Home, name: str) -> _Secret | None:
    return home.ask(lambda kube: kube.get(home.core("secrets", name), _Secret))
