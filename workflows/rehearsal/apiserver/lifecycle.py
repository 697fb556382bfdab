"""Create, update and delete of an object: what a real server's registry does between decoding and storing.

Everything here runs without waiting, so a request sees and changes the store as one step.
"""

from dataclasses import dataclass

from workflows.rehearsal.apiserver import admission, conform, crds, errors, managed, objectmeta
from workflows.rehearsal.apiserver.conform import Write
from workflows.rehearsal.apiserver.entry import Entry, Object, entry_of
from workflows.rehearsal.apiserver.managed import Manager
from workflows.rehearsal.apiserver.resources import Resource, Resources
from workflows.rehearsal.apiserver.store import Store

_NAMESPACES = ("", "namespaces")
_STATUS_ON_CREATE = frozenset({("", "nodes")})
"""Nodes may be created with their status; elsewhere it is dropped where a status sub-resource exists."""
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
"""Built-in resources that, like custom ones, are not updated without a resourceVersion (`AllowUnconditionalUpdate`)."""
_GENERATED_TRIES = 8


@dataclass(frozen=True)
class Deletion:
    """Delete options. `grace_s` None means the pod's own; `propagation` is Background, Foreground, Orphan or empty."""

    grace_s: int | None = None
    propagation: str = ""
    uid: str = ""
    revision: str = ""
    dry_run: bool = False


class Lifecycle:
    """The three writes on the store."""

    def __init__(self, store: Store, resources: Resources) -> None:
        self._store = store
        self._admission = admission.Namespaces(store, resources)

    def create(
        self, resource: Resource, namespace: str, body: Object, write: Write, *, records: list[Object] | None = None
    ) -> Entry:
        """A new object. `records` are the ownership records of a create by apply.

        Raises:
            ApiError: 400, 403, 404 (namespace), 409 (exists), 422.
        """
        conform.check_identity(resource, body)
        meta = body["metadata"]
        if meta.get("resourceVersion"):
            raise errors.ApiError(500, "", "resourceVersion should not be set on objects to be created")
        body["metadata"] = meta = _placed(resource, namespace, meta)
        if "status" in resource.subresources and resource.key not in _STATUS_ON_CREATE:
            body = {key: value for key, value in body.items() if key != "status"}
        obj = conform.shape(resource, body, write)
        obj["metadata"] = objectmeta.created(resource, obj["metadata"])
        self._admission.check_create(resource, namespace, meta.get("name", ""))
        self._name(resource, namespace, obj["metadata"])
        if resource.key == _NAMESPACES:
            obj.setdefault("spec", {})["finalizers"] = ["kubernetes"]
        if resource.key == crds.KEY:
            obj["metadata"]["finalizers"] = [*obj["metadata"].get("finalizers", ()), crds.CLEANUP]
        conform.finish(resource, obj, None)
        if records:
            obj["metadata"]["managedFields"] = records
        if write.dry_run:
            return entry_of(resource, obj, self._store.revision)
        return self._store.put(resource, obj, None, applied=bool(records))

    def _name(self, resource: Resource, namespace: str, meta: Object) -> None:
        table = self._store.table(resource.key)
        prefix = meta.get("generateName", "")
        if not meta.get("name"):
            if not prefix:
                raise errors.invalid(
                    resource.group, resource.kind, "", ["metadata.name: Required value: name or generateName is required"]
                )
            tries = (objectmeta.generated_name(prefix) for _ in range(_GENERATED_TRIES))
            meta["name"] = next((name for name in tries if table.get(namespace, name) is None), "")
        if not meta["name"] or table.get(namespace, meta["name"]) is not None:
            raise errors.already_exists(resource.group, resource.plural, meta["name"] or prefix)

    def update(
        self, resource: Resource, entry: Entry, body: Object, subresource: str, write: Write, *, applied: bool = False
    ) -> Entry:
        """The object after a full update; `body` is the whole new object. No change means no new revision.

        Raises:
            ApiError: 400, 409 (resourceVersion, uid), 422.
        """
        conform.check_identity(resource, body)
        old = entry.decode()
        meta = body["metadata"]
        _check_preconditions(resource, old["metadata"], meta)
        new = conform.shape(resource, _combined(resource, old, body, subresource), write)
        sent = new["metadata"]
        frozen = subresource == "status" and resource.custom
        new["metadata"] = objectmeta.updated(old["metadata"] if frozen else sent, old["metadata"])
        _check_finalizers(resource, new["metadata"], old["metadata"])
        conform.finish(resource, new, old)
        if objectmeta.counts_generation(resource) and _content(resource, new) != _content(resource, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if applied and meta.get("managedFields"):
            new["metadata"]["managedFields"] = meta["managedFields"]
        elif applied or meta.get("managedFields") == []:  # who applies nothing but a name owns no field
            new["metadata"].pop("managedFields", None)
        else:
            managed.track_update(new, old, resource.schema, Manager(write.manager, managed.UPDATE, subresource))
        return self._commit(resource, new, old, entry, write, applied)

    def _commit(self, resource: Resource, new: Object, old: Object, entry: Entry, write: Write, applied: bool) -> Entry:
        if new == old:
            return entry
        if write.dry_run:
            return entry_of(resource, new, entry.revision)
        if (
            new["metadata"].get("deletionTimestamp")
            and not _held(resource, new)
            and not new["metadata"].get("deletionGracePeriodSeconds")
        ):
            return self._store.remove(resource, new, entry)
        return self._store.put(resource, new, entry, applied=applied)

    def delete(self, resource: Resource, entry: Entry, deletion: Deletion) -> tuple[Entry, bool]:
        """The object's last or new state, and whether it is gone now. Finalizers, a grace period or a namespace's content hold it.

        Raises:
            ApiError: 403 (a namespace that must stay), 409 (preconditions).
        """
        old = entry.decode()
        _check_deletion(resource, old["metadata"], deletion)
        self._admission.check_delete(resource, entry.name)
        grace = _grace(resource, old, deletion)
        new = {**old, "metadata": _with_propagation(old["metadata"], deletion.propagation)}
        meta = new["metadata"]
        held = _held(resource, new)
        if not held and not grace:
            return (entry, True) if deletion.dry_run else (self._store.remove(resource, new, entry), True)
        if not meta.get("deletionTimestamp") or grace < meta.get("deletionGracePeriodSeconds", 0):
            meta |= {"deletionTimestamp": objectmeta.in_seconds(grace), "deletionGracePeriodSeconds": grace}
            if meta.get("generation"):
                meta["generation"] += 1
        if resource.key == _NAMESPACES:
            new["status"] = {**new.get("status", {}), "phase": "Terminating"}
        if new == old or deletion.dry_run:
            return entry, False
        return self._store.put(resource, new, entry), False


def _placed(resource: Resource, namespace: str, meta: Object) -> Object:
    if not resource.namespaced:
        if meta.get("namespace"):
            raise errors.invalid(
                resource.group,
                resource.kind,
                str(meta.get("name", "")),
                ["metadata.namespace: Forbidden: not allowed on this type"],
            )
        return meta
    if meta.get("namespace", namespace) not in (namespace, ""):
        raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    return {**meta, "namespace": namespace}


def _check_preconditions(resource: Resource, old: Object, meta: Object) -> None:
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


def _check_deletion(resource: Resource, meta: Object, deletion: Deletion) -> None:
    for what, wanted, held in (("UID", deletion.uid, meta["uid"]), ("ResourceVersion", deletion.revision, meta["resourceVersion"])):
        if wanted and wanted != held:
            why = f"Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {held}"
            raise errors.conflict(resource.group, resource.plural, meta["name"], why)


def _check_finalizers(resource: Resource, meta: Object, old: Object) -> None:
    added = sorted(set(meta.get("finalizers", ())) - set(old.get("finalizers", ())))
    if old.get("deletionTimestamp") and added:
        rule = "no new finalizers can be added if the object is being deleted"
        problem = f"metadata.finalizers: Forbidden: {rule}, found new finalizers {added}"
        raise errors.invalid(resource.group, resource.kind, old["name"], [problem])


def _combined(resource: Resource, old: Object, body: Object, subresource: str) -> Object:
    """The body with those parts of the old state that this sub-resource may not change."""
    if subresource == "status":
        kept = {key: value for key, value in old.items() if key not in ("metadata", "status")}
        return kept | {key: body[key] for key in ("metadata", "status") if key in body}
    fixed = {"status"} if "status" in resource.subresources else set()
    if resource.key == _NAMESPACES and subresource != "finalize":
        fixed.add("spec")
    return {key: value for key, value in body.items() if key not in fixed} | {key: old[key] for key in fixed if key in old}


def _content(resource: Resource, obj: Object) -> Object:
    """What counts as a new generation."""
    free = {"metadata", "apiVersion"} | ({"status"} if "status" in resource.subresources else set())
    return {key: value for key, value in obj.items() if key not in free}


def _held(resource: Resource, obj: Object) -> bool:
    in_use = resource.key == _NAMESPACES and obj.get("spec", {}).get("finalizers")
    return bool(obj["metadata"].get("finalizers") or in_use)


def _grace(resource: Resource, obj: Object, deletion: Deletion) -> int:
    """Only pods that a kubelet may be running end gracefully (`podStrategy.CheckGracefulDelete`)."""
    if resource.key != ("", "pods") or not obj["spec"].get("nodeName") or obj["status"].get("phase") in ("Succeeded", "Failed"):
        return 0
    asked = deletion.grace_s if deletion.grace_s is not None else obj["spec"].get("terminationGracePeriodSeconds", 30)
    return 1 if asked < 0 else int(asked)


def _with_propagation(meta: Object, propagation: str) -> Object:
    """The metadata with the finalizer on which the garbage collector acts."""
    ours = {"Orphan": "orphan", "Foreground": "foregroundDeletion"}
    if not propagation or meta.get("deletionTimestamp"):
        return dict(meta)
    finalizers = [name for name in meta.get("finalizers", ()) if name not in ours.values()]
    finalizers += [ours[propagation]] if propagation in ours else []
    kept = {key: value for key, value in meta.items() if key != "finalizers"}
    return kept | ({"finalizers": finalizers} if finalizers else {})
