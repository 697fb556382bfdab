"""Create, update and delete of objects, with the checks of a real server's registry between decoding and storing.

No function here awaits anything, so a request reads and changes the store as one step.
"""

from dataclasses import dataclass, field
from enum import Enum

from workflows.rehearsal.apiserver import (
    builtin_decoder,
    builtin_defaults,
    builtin_validation,
    crd_resources,
    errors,
    managed_fields,
    object_metadata,
    structural_schema,
)
from workflows.rehearsal.apiserver.managed_fields import FieldManager
from workflows.rehearsal.apiserver.object_store import ObjectStore
from workflows.rehearsal.apiserver.served_resources import ResourceTable, ServedResource, metadata_schema
from workflows.rehearsal.apiserver.stored_object import Object, StoredObject, encode_object


class FieldValidation(Enum):
    """The treatment of unknown fields in a write: refuse, warn or ignore (query parameter `fieldValidation`)."""

    STRICT = "Strict"
    WARN = "Warn"
    IGNORE = "Ignore"


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write. `unknown` says how to treat unknown fields; `warnings` collects texts for `Warning` headers."""

    manager: str
    dry_run: bool = False
    unknown: FieldValidation = FieldValidation.WARN
    warnings: list[str] = field(default_factory=list)


def check_identity(resource: ServedResource, body: Object) -> None:
    """Check apiVersion and kind of a request body against the resource, and add empty metadata if it has none.

    Raises StatusError (400) if the body is of another kind or version, or if a custom resource does not name its kind.
    """
    if resource.custom and not body.get("kind"):
        raise errors.bad_request("Object 'Kind' is missing in the request body")
    if body.get("apiVersion", resource.api_version) != resource.api_version:
        versions = f"({body['apiVersion']}) does not match the expected API version ({resource.api_version})"
        raise errors.bad_request(f"the API version in the data {versions}")
    if body.get("kind", resource.kind) != resource.kind:
        raise errors.bad_request(f"the kind in the data ({body['kind']}) does not match the expected kind ({resource.kind})")
    if not isinstance(body.setdefault("metadata", {}), dict):
        raise errors.bad_request("metadata must be an object")


def decode_body(resource: ServedResource, body: Object, write: WriteOptions, old: Object | None = None) -> Object:
    """Return the request body in its stored form: apiVersion and kind set, types checked, unknown fields removed.

    Parts of the body that are parts of `old`, the object as it is stored, are not checked again.
    Raises StatusError: 400 for a wrong type or for unknown fields under strict validation, 422 for a missing required list.
    """
    decoder = builtin_decoder.BuiltinDecoder()
    try:
        metadata = decoder.decode(body["metadata"], metadata_schema(), "metadata", (old or {}).get("metadata"))
        decoded = _body_content(resource, _without_identity(body), decoder, old)
    except builtin_decoder.WrongTypeError as error:
        message = f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: {error}'
        raise errors.bad_request(message) from error
    _refuse_unknown(decoder.unknown, write)
    if decoder.missing:
        problems = [f"{path}: Required value" for path in decoder.missing]
        raise errors.invalid(resource.group, resource.kind, metadata.get("name", ""), problems)
    stored = f"{resource.group}/{resource.storage_version}" if resource.group else resource.storage_version
    return {"apiVersion": stored, "kind": resource.kind, "metadata": metadata, **_without_identity(decoded)}


def _without_identity(obj: Object) -> Object:
    return {key: value for key, value in obj.items() if key not in ("apiVersion", "kind", "metadata")}


def _body_content(resource: ServedResource, rest: Object, decoder: builtin_decoder.BuiltinDecoder, old: Object | None) -> Object:
    schema = resource.schema
    if resource.custom:
        pruned: Object = structural_schema.prune(rest, schema, "", decoder.unknown)
        return pruned
    for part in ("spec", "status"):  # structs and not pointers in Go, so a real server always writes them
        if part in schema.properties and schema.child(part).properties:
            rest.setdefault(part, {})
    decoded: Object = decoder.decode(rest, schema, "", old)
    return decoded


def undeclared_fields(resource: ServedResource, body: Object) -> list[str]:
    """Return the dotted paths of all fields in the body that the resource's type does not declare; empty for a wrong type."""
    decoder = builtin_decoder.BuiltinDecoder()
    rest = _without_identity(body)
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
    """Fill in an object's defaults in place and check the rules of its kind. `old` is its state before an update, None on create.

    Raises one StatusError (422) that lists all errors.
    """
    meta = obj["metadata"]
    problems = [] if old else list(filter(None, [object_metadata.name_problem(resource, meta["name"])]))
    if old is None or any(meta.get(key) is not old["metadata"].get(key) for key in object_metadata.CHOSEN):
        problems += object_metadata.problems(meta)
    if resource.custom:
        content = _without_identity(obj)
        structural_schema.fill_defaults(content, resource.schema)
        obj.update(content)
        problems += [text for text in structural_schema.validate(content, resource.schema, "") if not text.startswith("metadata")]
    else:
        builtin_defaults.fill(resource, obj)
        problems += builtin_validation.problems(resource, obj)
        problems += builtin_validation.change_problems(resource, obj, old) if old else []
    if problems:
        raise errors.invalid(resource.group, resource.kind, meta["name"], problems)


_NAMESPACES = ("", "namespaces")
_STATUS_ON_CREATE = frozenset({("", "nodes")})
"""Resources (group, plural) that may be created with their status. Any other with a status sub-resource loses it on create."""
_CONDITIONAL = frozenset(
    {
        "apiservices",
        "csidrivers",
        "csinodes",
        "csistoragecapacities",
        "customresourcedefinitions",
        "leases",
        "mutatingwebhookconfigurations",
        "poddisruptionbudgets",
        "runtimeclasses",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "validatingwebhookconfigurations",
        "volumeattachments",
    }
)
"""Built-in resources that refuse an update without resourceVersion, as all custom ones do (no `AllowUnconditionalUpdate`)."""
_GENERATED_TRIES = 8  # `maxNameGenerationCreateAttempts` of kube-apiserver
_UNDELETABLE = frozenset({"default", "kube-system", "kube-public"})  # the immortal namespaces of NamespaceLifecycle


@dataclass(frozen=True)
class Deletion:
    """The options of a delete request.

    `grace_s` is in seconds; None means the pod's own grace period. `propagation` is Background, Foreground, Orphan or empty. A
    `uid` or `revision` that is not empty must be that of the stored object.
    """

    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


class Lifecycle:
    """Create, update and delete of objects in the store, with defaults, validation and admission.

    NamespaceLifecycle, the only admission plugin that clients of a bring-up depend on, is part of create and delete.
    """

    def __init__(self, store: ObjectStore, resources: ResourceTable) -> None:
        self._store = store
        self._namespaces = resources.core("namespaces")

    def create(
        self, resource: ServedResource, namespace: str, body: Object, write: WriteOptions, *, records: list[Object] | None = None
    ) -> StoredObject:
        """Store a new object and return it; a dry run returns it without storing.

        `records` are its managedFields if server-side apply creates it. Raises StatusError: 400, 403 (the namespace is being
        deleted), 404 (no such namespace), 409 (the object exists), 422 (invalid) or 500 (it has a resourceVersion, or is too large
        for etcd).
        """
        check_identity(resource, body)
        meta = body["metadata"]
        if meta.get("resourceVersion"):
            # no 400: a real server refuses this in its storage, with a plain error
            raise errors.StatusError(500, "", "resourceVersion should not be set on objects to be created")
        body["metadata"] = meta = _placed(resource, namespace, meta)
        if "status" in resource.subresources and resource.key not in _STATUS_ON_CREATE:
            body = {key: value for key, value in body.items() if key != "status"}
        obj = decode_body(resource, body, write)
        obj["metadata"] = object_metadata.new_metadata(resource, obj["metadata"])
        if resource.namespaced:
            self._admit(resource, namespace, meta.get("name", ""))
        self._name(resource, namespace, obj["metadata"])
        if resource.key == _NAMESPACES:  # the namespace controller removes it once the namespace is empty
            obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        if resource.key == crd_resources.CRD_KEY:
            obj["metadata"]["finalizers"] = [*obj["metadata"].get("finalizers", ()), crd_resources.CLEANUP_FINALIZER]
        complete_object(resource, obj, None)
        if records:
            obj["metadata"]["managedFields"] = records
        if write.dry_run:
            return encode_object(resource, obj, self._store.revision)
        return self._store.put(resource, obj, None, applied=bool(records))

    def _admit(self, resource: ServedResource, namespace: str, name: str) -> None:
        """Raise StatusError if the new object's namespace is missing (404) or is being deleted (403)."""
        if self._store.get(self._namespaces, "", namespace).decode()["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            message = f"namespace {namespace} is being terminated"
            cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
            raise errors.forbidden(resource.group, resource.plural, name, why, cause=cause)

    def _name(self, resource: ServedResource, namespace: str, meta: Object) -> None:
        table = self._store.table(resource.key)
        prefix = meta.get("generateName", "")
        if not meta.get("name"):
            if not prefix:
                problem = "metadata.name: Required value: name or generateName is required"
                raise errors.invalid(resource.group, resource.kind, "", [problem])
            tries = (object_metadata.generated_name(prefix) for _ in range(_GENERATED_TRIES))
            meta["name"] = next((name for name in tries if table.get(namespace, name) is None), "")
        if not meta["name"] or table.get(namespace, meta["name"]) is not None:
            raise errors.already_exists(resource.group, resource.plural, meta["name"] or prefix)

    def update(
        self,
        resource: ServedResource,
        entry: StoredObject,
        body: Object,
        subresource: str,
        write: WriteOptions,
        *,
        applied: bool = False,
        old: Object | None = None,
    ) -> StoredObject:
        """Replace an object or its sub-resource with `body`, the whole new object, and return the stored state.

        `old` is the decoded entry, if the caller has made `body` from it without changing it: what both share is not checked again.
        An update without a change keeps the revision. Raises StatusError: 400, 409 (wrong resourceVersion or uid), 422 (invalid) or
        500 (too large for etcd).
        """
        check_identity(resource, body)
        if old is None or resource.custom:  # defaults of custom resources are filled in place
            old = entry.decode()
        meta = body["metadata"]
        _check_preconditions(resource, old["metadata"], meta)
        new = decode_body(resource, _combined(resource, old, body, subresource), write, old)
        sent = new["metadata"]
        # The status of a custom resource is written without any metadata; built-in kinds take labels and annotations with it.
        frozen = subresource == "status" and resource.custom
        new["metadata"] = object_metadata.updated_metadata(old["metadata"] if frozen else sent, old["metadata"])
        _check_finalizers(resource, new["metadata"], old["metadata"])
        complete_object(resource, new, old)
        if object_metadata.counts_generation(resource) and _content(resource, new) != _content(resource, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if applied and meta.get("managedFields"):
            new["metadata"]["managedFields"] = meta["managedFields"]
        elif applied or meta.get("managedFields") == []:  # an apply of nothing but a name owns no field
            new["metadata"].pop("managedFields", None)
        else:
            managed_fields.track_update(new, old, resource.schema, FieldManager(write.manager, managed_fields.UPDATE, subresource))
        return self._commit(resource, new, old, entry, write, applied)

    def _commit(
        self, resource: ServedResource, new: Object, old: Object, entry: StoredObject, write: WriteOptions, applied: bool
    ) -> StoredObject:
        if new == old:
            return entry
        if write.dry_run:
            return encode_object(resource, new, entry.revision)
        meta = new["metadata"]
        # the update has removed the last finalizer
        if meta.get("deletionTimestamp") and not _held(resource, new) and not meta.get("deletionGracePeriodSeconds"):
            return self._store.remove(resource, new, entry)
        return self._store.put(resource, new, entry, applied=applied)

    def delete(self, resource: ServedResource, entry: StoredObject, deletion: Deletion) -> tuple[StoredObject, bool]:
        """Delete an object. Return its last state and True if it is gone now, else its new state and False.

        Finalizers, a grace period or a namespace's content keep the object until they are cleared. Raises StatusError: 403 (a
        namespace that may not be deleted) or 409 (uid or revision differ).
        """
        old = entry.decode()
        _check_deletion(resource, old["metadata"], deletion)
        if resource is self._namespaces and entry.name in _UNDELETABLE:
            raise errors.forbidden("", "namespaces", entry.name, "this namespace may not be deleted")
        grace = _grace(resource, old, deletion)
        new = {**old, "metadata": _with_propagation(old["metadata"], deletion.propagation)}
        meta = new["metadata"]
        if not grace and not _held(resource, new):
            return (entry, True) if deletion.dry_run else (self._store.remove(resource, new, entry), True)
        # a further delete can only shorten the grace period
        if not meta.get("deletionTimestamp") or grace < meta.get("deletionGracePeriodSeconds", 0):
            meta |= {"deletionTimestamp": object_metadata.current_time(grace), "deletionGracePeriodSeconds": grace}
            if meta.get("generation"):
                meta["generation"] += 1
        if resource.key == _NAMESPACES:
            new["status"] = {**new.get("status", {}), "phase": "Terminating"}
        if new == old or deletion.dry_run:
            return entry, False
        return self._store.put(resource, new, entry), False


def _placed(resource: ServedResource, namespace: str, meta: Object) -> Object:
    if not resource.namespaced:
        if meta.get("namespace"):
            problem = "metadata.namespace: Forbidden: not allowed on this type"
            raise errors.invalid(resource.group, resource.kind, str(meta.get("name", "")), [problem])
        return meta
    if meta.get("namespace", namespace) not in (namespace, ""):
        raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return {**meta, "namespace": namespace}


def _check_preconditions(resource: ServedResource, old: Object, meta: Object) -> None:
    name = old["name"]
    if not meta.get("name"):
        raise errors.bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")
    if meta["name"] != name:
        raise errors.bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    if meta.get("namespace", old.get("namespace", "")) != old.get("namespace", ""):
        raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if meta.get("uid") and meta["uid"] != old["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {old['uid']}"
        raise errors.conflict(resource.group, resource.plural, name, why)
    if not meta.get("resourceVersion"):
        if resource.custom or resource.plural in _CONDITIONAL:
            problem = "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            raise errors.invalid(resource.group, resource.kind, name, [problem])
    elif meta["resourceVersion"] != old["resourceVersion"]:
        raise errors.stale(resource.group, resource.plural, name)


def _check_deletion(resource: ServedResource, meta: Object, deletion: Deletion) -> None:
    for what, wanted, live in (("UID", deletion.uid, meta["uid"]), ("ResourceVersion", deletion.revision, meta["resourceVersion"])):
        if wanted and wanted != live:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {live}"
            raise errors.conflict(resource.group, resource.plural, meta["name"], why)


def _check_finalizers(resource: ServedResource, meta: Object, old: Object) -> None:
    added = sorted(set(meta.get("finalizers", ())) - set(old.get("finalizers", ())))
    if old.get("deletionTimestamp") and added:
        rule = "no new finalizers can be added if the object is being deleted"
        problem = f"metadata.finalizers: Forbidden: {rule}, found new finalizers {added}"
        raise errors.invalid(resource.group, resource.kind, old["name"], [problem])


def _combined(resource: ServedResource, old: Object, body: Object, subresource: str) -> Object:
    """Return the object that an update stores: `body`, with the parts of `old` that a write to this sub-resource may not change."""
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key not in ("metadata", "status")}
        return kept | {key: body[key] for key in ("metadata", "status") if key in body}
    fixed = {"status"} if "status" in resource.subresources else set()
    if resource.key == _NAMESPACES and subresource != "finalize":
        fixed.add("spec")
    return {key: value for key, value in body.items() if key not in fixed} | {key: old[key] for key in fixed if key in old}


def _content(resource: ServedResource, obj: Object) -> Object:
    """Return the fields of an object whose change increments `metadata.generation`."""
    free = {"metadata", "apiVersion"} | ({"status"} if "status" in resource.subresources else set())
    return {key: value for key, value in obj.items() if key not in free}


def _held(resource: ServedResource, obj: Object) -> bool:
    in_use = resource.key == _NAMESPACES and obj.get("spec", {}).get("finalizers")
    return bool(obj["metadata"].get("finalizers") or in_use)


def _grace(resource: ServedResource, obj: Object, deletion: Deletion) -> int:
    """Return the grace period of a delete in seconds: 0 except for pods that a kubelet may run (`CheckGracefulDelete`)."""
    if resource.key != ("", "pods") or not obj["spec"].get("nodeName") or obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    seconds = deletion.grace_s if deletion.grace_s is not None else obj["spec"].get("terminationGracePeriodSeconds", 30)
    return 1 if seconds < 0 else int(seconds)  # a real server takes one second for a negative period


def _with_propagation(meta: Object, propagation: str) -> Object:
    """Return a copy of the metadata with the finalizer that tells the garbage collector the propagation policy."""
    ours = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
    if not propagation or meta.get("deletionTimestamp"):
        return dict(meta)
    finalizers = [name for name in meta.get("finalizers", ()) if name not in ours.values()]
    finalizers += [ours[propagation]] if propagation in ours else []
    kept = {key: value for key, value in meta.items() if key != "finalizers"}
    return kept | ({"finalizers": finalizers} if finalizers else {})
