"""The secrets of a run on Argo: collect those of this machine, and check that those of the home cluster exist.

All missing secrets are named in one message.
"""

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from pydantic import BaseModel

from steps.errors import Refused
from workflows.engines import run_inputs
from workflows.engines.argo.home import Home
from workflows.engines.run_inputs import SecretMissing
from workflows.plan.model import Plan
from workflows.spec import ClusterSpec
from workflows.spec.fields import SecretKey
from workflows.stages.access import SecretFile


class SecretOutOfNamespace(ValueError):
    """The spec names a Secret in another namespace than that of the runs, whose pods could not mount it."""

    hint = "copy it into the namespace of the runs and leave `namespace` out, or choose that namespace with --namespace"


class _Secret(Struct, frozen=True):
    data: dict[str, str] = {}


def check_namespaces(spec: ClusterSpec, home: Home) -> None:
    """Raise SecretOutOfNamespace if the spec names a Secret in another namespace than that of the runs."""
    others = [reference for reference in _references(spec) if reference.namespace not in (None, home.namespace)]
    if others:
        named = ", ".join(dict.fromkeys(f"{reference.namespace}/{reference.name}" for reference in others))
        raise SecretOutOfNamespace(
            f"the spec names Secret {named}, but runs in namespace {home.namespace} can only mount Secrets of that namespace"
        )


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


def collect_secrets(home: Home, plan: Plan, spec_folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return the secrets from this machine's files and variables, by name, after checking those in the home cluster.

    Raises SecretMissing, which names all that are missing or unusable. Secrets that this account may not read are not checked.
    """
    missing, hint, contents = list(_missing(home, plan)), "", dict[str, bytes]()
    try:
        contents = run_inputs.read_secrets([file for file in plan.secrets if not file.secret], spec_folder, environ)
    except SecretMissing as error:
        missing.insert(0, str(error))
        hint = error.hint
    if missing:
        raise SecretMissing("; ".join(missing), hint)
    return contents


def fetch_secret(home: Home, file: SecretFile) -> bytes:
    """Return the content of a secret that the home cluster holds. Raises SecretMissing if it is missing or may not be read."""
    try:
        kube_secret = _read(home, file.secret)
    except Refused as error:
        sentence = f"secret {file.name}: Secret {file.secret} in namespace {home.namespace} of the home cluster: {error}"
        raise SecretMissing(sentence) from error
    if lacking := _lacking(home, file, kube_secret):
        raise SecretMissing(lacking)
    return run_inputs.checked_secret(file, base64.b64decode(kube_secret.data[file.key] if kube_secret else ""))


def _missing(home: Home, plan: Plan) -> Iterator[str]:
    """Yield a sentence for each secret that the home cluster lacks or holds in an unusable form."""
    for file in plan.secrets:
        if not file.secret:
            continue
        try:
            kube_secret = _read(home, file.secret)
        except Refused:
            continue  # accounts that submit runs need no right to read Secrets
        if lacking := _lacking(home, file, kube_secret):
            yield lacking
        elif kube_secret is not None:
            yield from _unusable(file, kube_secret.data[file.key])


def _lacking(home: Home, file: SecretFile, kube_secret: _Secret | None) -> str:
    """Return a sentence if the Secret or its key is missing in the home cluster, else ""."""
    if kube_secret is None:
        return f"secret {file.name}: namespace {home.namespace} of the home cluster has no Secret {file.secret}"
    if file.key not in kube_secret.data:
        return f"secret {file.name}: Secret {file.secret} of the home cluster has no key {file.key}"
    return ""


def _unusable(file: SecretFile, data: str) -> Iterator[str]:
    """Yield a sentence if the run could not use this content (`data`, in base64)."""
    try:
        run_inputs.checked_secret(file, base64.b64decode(data))
    except SecretMissing as error:
        yield f"Secret {file.secret} of the home cluster, key {file.key}: {error}"


def _read(home: Home, name: str) -> _Secret | None:
    return home.ask(lambda kube: kube.get(home.core("secrets", name), _Secret))
