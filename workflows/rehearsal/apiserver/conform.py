"""From what a client sent to what is stored: type check, unknown fields, defaults, rules. One way in for every write."""

from dataclasses import dataclass, field
from enum import Enum

from workflows.rehearsal.apiserver import defaults, errors, objectmeta, structural, typed, validation
from workflows.rehearsal.apiserver.entry import Object
from workflows.rehearsal.apiserver.resources import Resource, metadata_schema


class Unknown(Enum):
    """What to do about unknown fields (query parameter `fieldValidation`)."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@dataclass(frozen=True)
class Write:
    """How a request writes: field manager, dry run, unknown fields. `warnings` collects what goes into `Warning` headers."""

    manager: str
    dry_run: bool = False
    unknown: Unknown = Unknown.WARN
    warnings: list[str] = field(default_factory=list)


def check_identity(resource: Resource, body: Object) -> None:
    """Sets apiVersion and kind where a client may leave them out.

    Raises:
        ApiError: 400, the body is of another kind or version, or a custom resource does not say its kind.
    """
    if resource.custom and not body.get("kind"):
        raise errors.bad_request("Object 'Kind' is missing in the request body")
    if body.get("apiVersion", resource.api_version) != resource.api_version:
        message = (
            f"the API version in the data ({body['apiVersion']}) does not match the expected API version ({resource.api_version})"
        )
        raise errors.bad_request(message)
    if body.get("kind", resource.kind) != resource.kind:
        raise errors.bad_request(f"the kind in the data ({body['kind']}) does not match the expected kind ({resource.kind})")
    if not isinstance(body.setdefault("metadata", {}), dict):
        raise errors.bad_request("metadata must be an object")


def shape(resource: Resource, body: Object, write: Write) -> Object:
    """The body as its kind stores it, identity first, without unknown fields.

    Raises:
        ApiError: 400, a wrong type, or an unknown field under strict validation; 422, a required list is missing.
    """
    decoder = typed.Decoder()
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    try:
        metadata = decoder.decode(body["metadata"], metadata_schema(), "metadata")
        decoded = _content(resource, rest, decoder)
    except typed.WrongTypeError as error:
        message = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        raise errors.bad_request(message) from error
    _refuse_unknown(decoder.unknown, write)
    if decoder.missing:
        raise errors.invalid(
            resource.group, resource.kind, metadata.get("name", ""), [f"{path}: Required value" for path in decoder.missing]
        )
    for key in ("apiVersion", "kind", "metadata"):
        decoded.pop(key, None)
    stored = f"{resource.group}/{resource.storage_version}" if resource.group else resource.storage_version
    return {"apiVersion": stored, "kind": resource.kind, "metadata": metadata, **decoded}


def _content(resource: Resource, rest: Object, decoder: typed.Decoder) -> Object:
    schema = resource.schema
    if resource.custom:
        pruned: Object = structural.prune(rest, schema, "", decoder.unknown)
        return pruned
    for part in ("spec", "status"):  # Go structs, not pointers: always there
        if part in schema.properties and schema.child(part).properties:
            rest.setdefault(part, {})
    decoded: Object = decoder.decode(rest, schema, "")
    return decoded


def undeclared(resource: Resource, body: Object) -> list[str]:
    """The paths in the body that the resource's type does not declare."""
    decoder = typed.Decoder()
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    if resource.custom:
        structural.prune(rest, resource.schema, "", decoder.unknown)
        return decoder.unknown
    try:
        decoder.decode(rest, resource.schema, "")
    except typed.WrongTypeError:
        return []  # the write itself will say it better
    return decoder.unknown


def _refuse_unknown(paths: list[str], write: Write) -> None:
    if not paths or write.unknown is Unknown.IGNORE:
        return
    messages = [f'unknown field "{path}"' for path in paths]
    if write.unknown is Unknown.STRICT:
        raise errors.bad_request("strict decoding error: " + ", ".join(messages))
    write.warnings.extend(messages)


def finish(resource: Resource, obj: Object, old: Object | None) -> None:
    """Fills in defaults in place and checks the rules; `old` is the state before an update.

    Raises:
        ApiError: 422 with everything that is wrong.
    """
    meta = obj["metadata"]
    found = [] if old else list(filter(None, [objectmeta.name_problem(resource, meta["name"])]))
    found += objectmeta.problems(meta)
    if resource.custom:
        content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
        structural.fill_defaults(content, resource.schema)
        obj.update(content)
        found += [text for text in structural.validate(content, resource.schema, "") if not text.startswith("metadata")]
    else:
        defaults.fill(resource, obj)
        found += validation.problems(resource, obj)
        found += validation.change_problems(resource, obj, old) if old else []
    if found:
        raise errors.invalid(resource.group, resource.kind, meta["name"], found)
