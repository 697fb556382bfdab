"""Request bodies: size limit, JSON or YAML, and the parameters of a write."""

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml
from aiohttp import web

from workflows.rehearsal.apiserver import errors
from workflows.rehearsal.apiserver.conform import Unknown, Write
from workflows.rehearsal.apiserver.lifecycle import Deletion

MAX_BYTES = 3 << 20
"""kube-apiserver's limit on a resource request."""
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_YAML = frozenset({"application/yaml", "application/apply-patch+yaml"})
_JSON = frozenset({"application/json", "application/octet-stream"})
ACCEPTED = ("application/json", "application/yaml")


class _Loader(yaml.CSafeLoader):
    """The safe loader without dates: in a Kubernetes object they are text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag != _TIMESTAMP]
    for first, rules in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}


async def read(request: web.Request) -> bytes:
    """The body.

    Raises:
        ApiError: 413.
    """
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise errors.too_large() from error


def parse(data: bytes, content_type: str) -> Any:
    """The decoded body. YAML is read by the safe loader, where JSON does not do.

    Raises:
        ApiError: 400.
    """
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
    """The object in the body.

    Raises:
        ApiError: 400, 413, 415.
    """
    if request.content_type not in _YAML | _JSON:
        raise errors.unsupported_media_type(ACCEPTED)
    return as_object(parse(await read(request), request.content_type))


def as_object(body: Any) -> dict[str, Any]:
    """The body, which must be an object.

    Raises:
        ApiError: 400.
    """
    if not isinstance(body, dict):
        raise errors.bad_request("the request body must be an object")
    return body


def _dry_run(query: Mapping[str, str]) -> bool:
    if query.get("dryRun", "") not in ("", "All"):
        raise errors.invalid(
            "meta.k8s.io", "Options", "", [f'dryRun: Unsupported value: "{query["dryRun"]}": supported values: "All"']
        )
    return query.get("dryRun") == "All"


def write_options(request: web.Request) -> Write:
    """How the request writes.

    Raises:
        ApiError: 400 or 422, an unknown option.
    """
    query = request.query
    manager = query.get("fieldManager") or request.headers.get("User-Agent", "unknown").partition("/")[0]
    try:
        unknown = Unknown(query.get("fieldValidation") or "Warn")
    except ValueError as error:
        raise errors.bad_request(f"fieldValidation: Unsupported value: {query['fieldValidation']!r}") from error
    return Write(manager, _dry_run(query), unknown)


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
    """The delete options of body and query.

    Raises:
        ApiError: 400.
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
