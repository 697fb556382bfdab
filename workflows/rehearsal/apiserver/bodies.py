"""Request bodies of the emulated API server: size limit, JSON or YAML, options of writes and of deletes."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.lifecycle import Deletion, FieldValidation, WriteOptions

MAX_BYTES = 3 << 20
"""Largest body of a request on a resource, in bytes, as in kube-apiserver."""
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_JSON = frozenset({"application/json", "application/octet-stream"})
ACCEPTED = ("application/json", "application/yaml")


class _Loader(yaml.CSafeLoader):
    """A safe YAML loader that reads dates as text, because a Kubernetes object has no date type."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != _TIMESTAMP]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


async def read(request: web.Request) -> bytes:
    """Return the bytes of the request body. Raises StatusError (413) if they exceed `MAX_BYTES`."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise errors.too_large() from error


def parse(data: bytes, content_type: str) -> Any:
    """Decode a request body as JSON or, where `content_type` allows it, as YAML, and return the value. Raises StatusError (400)."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        if content_type not in _YAML:
            raise errors.bad_request(f"couldn't decode the request body: {error}") from error
    try:
        return msgspec.to_builtins(yaml.load(data, Loader=_Loader), str_keys=True)
    except (yaml.YAMLError, RecursionError, TypeError) as error:
        raise errors.bad_request(f"error decoding YAML: {error}") from error


async def read_object(request: web.Request) -> dict[str, Any]:
    """Read the request body and return its object. Raises StatusError: 400 (malformed), 413 (too large) or 415 (content type)."""
    if request.content_type not in _YAML | _JSON:
        raise errors.unsupported_media_type(ACCEPTED)
    return as_object(parse(await read(request), request.content_type))


def as_object(body: Any) -> dict[str, Any]:
    """Return `body` unchanged if it is a JSON object; raise StatusError (400) otherwise."""
    if not isinstance(body, dict):
        raise errors.bad_request("the request body must be an object")
    return body


def _dry_run(query: Mapping[str, str]) -> bool:
    if query.get("dryRun", "") not in ("", "All"):
        raise errors.invalid(
            "meta.k8s.io", "Options", "", [f'dryRun: Unsupported value: "{query["dryRun"]}": supported values: "All"']
        )
    return query.get("dryRun") == "All"


def write_options(request: web.Request) -> WriteOptions:
    """Return the options in a write request's query. Raises StatusError (400 or 422) for an unknown value.

    The field manager is the parameter `fieldManager`, else the first part of the User-Agent.
    """
    query = request.query
    manager = query.get("fieldManager") or request.headers.get("User-Agent", "unknown").partition("/")[0]
    try:
        unknown = FieldValidation(query.get("fieldValidation") or "Warn")
    except ValueError as error:
        raise errors.bad_request(f"fieldValidation: Unsupported value: {query['fieldValidation']!r}") from error
    return WriteOptions(manager, _dry_run(query), unknown)


def _seconds(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.removeprefix("-").isdigit():
        raise errors.bad_request(f"invalid gracePeriodSeconds: {text!r}")
    return int(text)


class _Preconditions(msgspec.Struct):
    uid: str = ""
    revision: str = msgspec.field(name="resourceVersion", default="")


class _DeleteOptions(msgspec.Struct, rename="camel"):
    grace_period_seconds: int | None = None
    propagation_policy: str | None = None
    orphan_dependents: bool | None = None
    preconditions: _Preconditions | None = None
    dry_run: list[str] | None = None


async def delete_options(request: web.Request) -> Deletion:
    """Return the options of a DELETE request, from its body and query. Raises StatusError: 400, 413 or 422 (unknown policy).

    The query decides on the grace period, the body on the propagation policy, if both set it.
    """
    data = await read(request)
    try:
        sent = msgspec.json.decode(data, type=_DeleteOptions) if data else _DeleteOptions()
    except msgspec.DecodeError as error:
        raise errors.bad_request(f"couldn't decode DeleteOptions: {error}") from error
    query = request.query
    grace = _seconds(query.get("gracePeriodSeconds"))
    propagation = sent.propagation_policy or query.get("propagationPolicy") or ("Orphan" if sent.orphan_dependents else "")
    if propagation not in ("", "Background", "Foreground", "Orphan"):
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [f'propagationPolicy: Unsupported value: "{propagation}"'])
    conditions = sent.preconditions or _Preconditions()
    return Deletion(
        grace_s=sent.grace_period_seconds if grace is None else grace,
        propagation=propagation,
        uid=conditions.uid,
        revision=conditions.revision,
        dry_run=bool(sent.dry_run) or _dry_run(query),
    )
