"""Rules about secrets that are written out: under keys, beside names, in arguments, in embedded files, and in generators."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any

from workflows.gitops_check import yaml_stream
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, mapping, sequence
from workflows.gitops_check.gitops_findings import GitopsFinding, finding
from workflows.gitops_check.placeholder_values import is_placeholder
from workflows.gitops_check.yaml_stream import Path, StreamDocument
from workflows.spec.parsing import secrecy

FIX = "revoke it, since Git keeps it for ever; then use a SealedSecret, an ExternalSecret or SOPS"
_ENCRYPTED = ("SealedSecret", "ExternalSecret", "SecretProviderClass", "ClusterExternalSecret", "VaultStaticSecret")
_REFERENCE = re.compile(r"(secret|key|ref|name|file|path|env)s?$", re.IGNORECASE)
_KEY_ITSELF = re.compile(r"(^|[_.-])(api|private|secret_access|encryption|signing)_?key$", re.IGNORECASE)
"""Names that end like a reference to a key, and hold the key itself; `secretKey: FIELD` names a field of a Secret."""
_MORE_NAMES = re.compile(r"[_.-](pass|pwd)$|^(requirepass|masterauth)$", re.IGNORECASE)
_ENVIRONMENT_SECRET = re.compile(r"^[A-Z][A-Z0-9]*(_[A-Z0-9]+)*_SECRET$")
_PASSWORD = re.compile(r"(pass(word|wd|phrase)?|pwd)$", re.IGNORECASE)
_FEWEST_DIGITS = 6
"""A number under a name such as `token` is a count or a limit if it has fewer digits."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_NO_SECRET = re.compile(r"\{\{|\$|^<|^ref\+|^vault:|^ENC\[|^\*+$|^(none|null|nil|true|false|yes|no|undefined)$", re.IGNORECASE)
"""Values that stand for another one: templates, variables, references, and words for no value."""
_CODE = re.compile(r"[(\[{`%]|^\w+(\.\w+)+$")
"""Values that are code: calls, subscripts, formats, attributes."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_ASSIGNED = re.compile(
    r"(?:^|(?<=[\s;\"']))(?:--?)?([A-Za-z][A-Za-z0-9_.-]{0,60})[ \t]{0,8}="
    r"[ \t]{0,8}(\"[^\"\n]{0,400}\"|'[^'\n]{0,400}'|[^\s;\"',]{1,400})",
    re.MULTILINE,
)
_OPTION = re.compile(r"--?([A-Za-z][A-Za-z0-9_.-]{0,60})")
_SETTINGS = re.compile(r"(^|/)[^/]*\.(env|cnf|conf|ini|properties|tfvars|toml)$|(^|/)\.?env(\.[\w-]+)?$")
"""Names of files with lines of the form NAME=VALUE."""
_SCRIPT = re.compile(r"\.(sh|bash|py|pl|rb|js|lua)$")
_EMBEDDED = re.compile(r"\.(ya?ml|json)$")
_LONGEST = 400
"""Characters of a value, or of a line of a text, that may be a secret: longer ones are scripts and prose."""
_DEEPEST = 2
"""So many texts within texts are read, such as a values file in a ConfigMap in `helm.values`."""


def secret_findings(path: str, document: StreamDocument) -> Iterator[GitopsFinding]:
    """Yield the secrets that a document writes out; encrypted ones and CRDs have none."""
    data = mapping(document.data)
    if "sops" in data or data.get("kind") in (*_ENCRYPTED, "Secret", "CustomResourceDefinition"):
        return
    seen: set[tuple[Path, str]] = set()
    for place, words in _written(document.data, 0):
        # an embedded text has one line: that of its key
        outer = place[: place.index("")] if "" in place else place
        shown = ".".join(str(part) for part in place if part != "")
        if (outer, words) not in seen:
            seen.add((outer, words))
            yield finding("secret-in-clear", (path, document.line(*outer)), f"{shown}: {words} is written out", FIX)


def secret_objects(tree: DeliveryTree) -> Iterator[GitopsFinding]:
    """Yield Secrets in clear, what kustomizations generate Secrets from, settings files, and private keys."""
    for manifest in tree.manifests:
        yield from _secret(manifest)
    for folder, kustomization in tree.kustomizations.items():
        yield from _generated(tree, folder, kustomization)
    for path, text in tree.files.items():
        if match := _PRIVATE_KEY.search(text):
            yield finding("secret-in-clear", (path, _line(text, match)), "a private key is written out", FIX)
        if _SETTINGS.search(path) and "ENC[" not in text:
            for match, words in _assigned(text, is_script=False):
                yield finding("secret-in-clear", (path, _line(text, match)), f"{words} is written out", FIX)


def is_reference(value: str) -> bool:
    """Return True for a value that stands for another one: a template, a variable, or a reference to a store of secrets."""
    return bool(_NO_SECRET.search(value))


def _line(text: str, match: re.Match[str]) -> int:
    return text.count("\n", 0, match.start(1) if match.re is _ASSIGNED else match.start()) + 1


# ---- values and their names -----------------------------------------------------------------------------------------------------


def _written(data: Any, depth: int) -> Iterator[tuple[Path, str]]:
    """Yield path and words for each secret of a document. An empty part of a path stands before a text within a text."""
    stack: list[tuple[Path, Any]] = [((), data)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, Mapping):
            stack += [((*place, str(key)), inner) for key, inner in item.items()]
            if isinstance(item.get("name"), str) and (words := _named(item["name"], item.get("value"))):
                yield (*place, "value"), words
        elif isinstance(item, list):
            stack += [((*place, number), inner) for number, inner in enumerate(item)]
            yield from _options(place, item)
        else:
            yield from _of_value(place, item, depth)


def _of_value(place: Path, value: Any, depth: int) -> Iterator[tuple[Path, str]]:
    key = next((str(part) for part in reversed(place) if isinstance(part, str)), "")
    # `passwd: [files, sss]` is a line of nsswitch.conf
    is_database = key == "passwd" and not isinstance(place[-1], str)
    if words := _named("" if is_database else key, value):
        yield place, words
    if not isinstance(value, str):
        return
    is_values = place[-2:] == ("helm", "values")
    if depth < _DEEPEST and (is_values or _EMBEDDED.search(key)):
        yield from (((*place, "", *inner), words) for inner, words in _embedded(value, depth + 1))
        return
    if "\n" in value.strip():
        yield from ((place, words) for line in value.splitlines() if (words := _named("", line)))
    is_script = value.startswith("#!") or bool(_SCRIPT.search(key))
    yield from ((place, words) for _, words in _assigned(value, is_script=is_script))


def _embedded(text: str, depth: int) -> Iterator[tuple[Path, str]]:
    try:
        read = yaml_stream.documents(text)
    except yaml_stream.BadStream:
        # a template: its lines may still assign secrets
        yield from (((), words) for _, words in _assigned(text, is_script=False))
        return
    for document in read:
        if "sops" not in mapping(document.data):
            yield from _written(document.data, depth)


def _named(key: str, value: Any) -> str:
    """Return what a value is if it is a secret by its form or by the name of its key; empty for other values."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        return ""
    text = str(value)
    if not text or len(text) > _LONGEST or "\n" in text.strip() or _PRIVATE_KEY.search(text):
        return ""
    if is_reference(text) or is_placeholder(text):
        return ""
    if form := secrecy.form_of(text):
        return form
    return f"a secret ({key})" if _names_secret(key) and not _is_count(key, text) else ""


def _names_secret(key: str) -> bool:
    spaced = _CAMEL.sub("_", key).replace("-", "_")
    if _KEY_ITSELF.search(spaced) or _MORE_NAMES.search(spaced) or _ENVIRONMENT_SECRET.search(key):
        return True
    # `tokenSecret: NAME` and `passwordKey: FIELD` name where a secret is
    return secrecy.names_secret(spaced) and (key.lower() == "secret" or not _REFERENCE.search(key.removesuffix("Key")))


def _is_count(key: str, text: str) -> bool:
    return text.isdigit() and not _PASSWORD.search(key) and len(text) < _FEWEST_DIGITS


def _options(place: Path, items: list[Any]) -> Iterator[tuple[Path, str]]:
    """Yield the secrets that follow their option in a list of arguments: `["--password", "…"]`."""
    for number, item in enumerate(items[:-1]):
        match = _OPTION.fullmatch(item) if isinstance(item, str) else None
        value = items[number + 1]
        if match and isinstance(value, str) and not value.startswith("-") and (words := _named(match[1], value)):
            yield (*place, number + 1), words


def _assigned(text: str, *, is_script: bool) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the assignments NAME=VALUE of a text that write out a secret. In scripts, a bare word is a variable or a function."""
    if "=" not in text and "://" not in text:
        return
    for match in _ASSIGNED.finditer(text):
        name, quoted = match.groups()
        value = quoted.strip("\"'")
        if is_script and (quoted == value and not re.search(r"\d", value)):
            continue
        if value.lower() != name.lower() and not _CODE.search(value) and (words := _named(name, value)):
            yield match, words


# ---- Secrets and generators -----------------------------------------------------------------------------------------------------


def _secret(manifest: DeliveredObject) -> Iterator[GitopsFinding]:
    if manifest.kind != "Secret" or manifest.group or "sops" in manifest.data:
        return
    for key in ("data", "stringData"):
        for name, value in mapping(manifest.data.get(key)).items():
            text = str(value or "")
            if text and not is_reference(text) and not is_placeholder(text):
                where = manifest.where(key, str(name))
                words = f"Secret {manifest.name} has {name} in clear (base64 is no encryption)"
                yield finding("secret-in-clear", where, words, FIX)


def _generated(tree: DeliveryTree, folder: str, kustomization: DeliveredObject) -> Iterator[GitopsFinding]:
    """Yield what makes Secrets of a kustomization: literals, and files of the tree that are not encrypted."""
    for number, entry in enumerate(map(mapping, sequence(kustomization.data.get("secretGenerator")))):
        place, name = ("secretGenerator", number), str(entry.get("name") or "")
        for at, literal in enumerate(sequence(entry.get("literals"))):
            key, _, value = str(literal).partition("=")
            if value and not is_reference(value) and not _named(key, value):
                words = f"secretGenerator {name} has {key} in clear"
                yield finding("secret-in-clear", kustomization.where(*place, "literals", at), words, FIX)
        for group in ("envs", "files"):
            for at, source in enumerate(sequence(entry.get(group))):
                path = posixpath.normpath(posixpath.join(folder, str(source).rpartition("=")[2]))
                text = tree.files.get(path, "")
                if text.strip() and "ENC[" not in text and "sops" not in text:
                    words = f"secretGenerator {name} makes a Secret of a file in clear"
                    yield finding("secret-in-clear", kustomization.where(*place, group, at), words, FIX)
