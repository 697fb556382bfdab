"""The steps between a request body and the stored object, passed by every write: types, unknown fields, defaults, rules."""

from dataclasses import dataclass, field
from enum import Enum

from workflows.rehearsal.apiserver import (
    builtin_decoder,
    builtin_defaults,
    builtin_validation,
    errors,
    object_metadata,
    structural_schema,
)
from workflows.rehearsal.apiserver.served_resources import ServedResource, metadata_schema
from workflows.rehearsal.apiserver.stored_object import Object


class FieldValidation(Enum):
    """The treatment of unknown fields in a write (query parameter `fieldValidation`)."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write: field manager, dry run and field validation. `warnings` collects texts for `Warning` headers."""

    manager: str
    dry_run: bool = False
    unknown: FieldValidation = FieldValidation.WARN
    warnings: list[str] = field(default_factory=list)


def check_identity(resource: ServedResource, body: Object) -> None:
    """Set apiVersion, kind and metadata where a client may leave them out.

    Raises StatusError (400) if the body is of another kind or version, or if a custom resource does not name its kind.
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


def decode_body(resource: ServedResource, body: Object, write: WriteOptions) -> Object:
    """Return the body in its stored form: identity first, types checked, unknown fields removed.

    Raises StatusError: 400 for a wrong type or for unknown fields under strict validation, 422 for a missing required list.
    """
    decoder = builtin_decoder.BuiltinDecoder()
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    try:
        metadata = decoder.decode(body["metadata"], metadata_schema(), "metadata")
        decoded = _content(resource, rest, decoder)
    except builtin_decoder.WrongTypeError as error:
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


def _content(resource: ServedResource, rest: Object, decoder: builtin_decoder.BuiltinDecoder) -> Object:
    schema = resource.schema
    if resource.custom:
        pruned: Object = structural_schema.prune(rest, schema, "", decoder.unknown)
        return pruned
    for part in ("spec", "status"):  # structs and not pointers in Go, so a real server always writes them
        if part in schema.properties and schema.child(part).properties:
            rest.setdefault(part, {})
    decoded: Object = decoder.decode(rest, schema, "")
    return decoded


def undeclared_fields(resource: ServedResource, body: Object) -> list[str]:
    """Return the paths in the body that the resource's type does not declare."""
    decoder = builtin_decoder.BuiltinDecoder()
    rest = {key: value for key, value in body.items() if key not in ("apiVersion", "kind", "metadata")}
    if resource.custom:
        structural_schema.prune(rest, resource.schema, "", decoder.unknown)
        return decoder.unknown
    try:
        decoder.decode(rest, resource.schema, "")
    except builtin_decoder.WrongTypeError:
        return []  # the write itself reports a wrong type with a better message
    return decoder.unknown


def _refuse_unknown(paths: list[str], write: WriteOptions) -> None:
    if not paths or write.unknown is FieldValidation.IGNORE:
        return
    messages = [f'unknown field "{path}"' for path in paths]
    if write.unknown is FieldValidation.STRICT:
        raise errors.bad_request("strict decoding error: " + ", ".join(messages))
    write.warnings.extend(messages)


def complete_object(resource: ServedResource, obj: Object, old: Object | None) -> None:
    """Fill in defaults in place and check the rules of the kind. `old` is the state before an update, None on create.

    Raises StatusError (422) that lists everything that is wrong.
    """
    meta = obj["metadata"]
    problems = [] if old else list(filter(None, [object_metadata.name_problem(resource, meta["name"])]))
    problems += object_metadata.problems(meta)
    if resource.custom:
        content = {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}
        structural_schema.fill_defaults(content, resource.schema)
        obj.update(content)
        problems += [text for text in structural_schema.validate(content, resource.schema, "") if not text.startswith("metadata")]
    else:
        builtin_defaults.fill(resource, obj)
        problems += builtin_validation.problems(resource, obj)
        problems += builtin_validation.change_problems(resource, obj, old) if old else []
    if problems:
        raise errors.invalid(resource.group, resource.kind, meta["name"], problems)
