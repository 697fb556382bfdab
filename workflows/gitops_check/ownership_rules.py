"""Rules across Applications: owners of objects, scaling, what a prune deletes, namespaces, order, settings of Argo CD."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from workflows.catalog.model import Component
from workflows.gitops_check.application_objects import (
    ChartUse,
    DeliveredApplication,
    is_templated,
    objects_at,
)
from workflows.gitops_check.delivery_tree import DeliveredObject, DeliveryTree, mapping
from workflows.gitops_check.gitops_findings import GitopsFinding, UncheckedPart, finding
from workflows.spec.errors import Severity

_CLUSTER_KINDS = frozenset(
    (
        *("Namespace", "CustomResourceDefinition", "ClusterRole", "ClusterRoleBinding", "StorageClass", "PriorityClass"),
        *("PersistentVolume", "IngressClass", "ValidatingWebhookConfiguration", "MutatingWebhookConfiguration", "DeviceClass"),
        *("ClusterPolicy", "NicClusterPolicy", "ClusterIssuer", "ClusterQueue", "ResourceFlavor", "RuntimeClass"),
    )
)
_BUILT_IN = frozenset({"", "default", "kube-system", "kube-public", "kube-node-lease"})
_SYNC_OPTIONS = "argocd.argoproj.io/sync-options"
_SCALERS = ("HorizontalPodAutoscaler", "ScaledObject")
_HEALTH = "resource.customizations.health.argoproj.io_Application"
_ALL_CUSTOMIZATIONS = "resource.customizations"
TYPE_FIELDS = "resource.customizations.knownTypeFields."


@dataclass(frozen=True, slots=True)
class OwnedObject:
    """An object with the Application that applies it; the namespace is the destination's where the object names none."""

    application: DeliveredApplication
    manifest: DeliveredObject

    @property
    def namespace(self) -> str:
        """Return the namespace that the object ends in; empty for cluster-wide kinds."""
        if self.manifest.kind in _CLUSTER_KINDS:
            return ""
        return str(self.manifest.metadata.get("namespace") or self.application.namespace)


def owned_objects(
    tree: DeliveryTree, delivered: Iterable[DeliveredApplication], rendered: Mapping[str, list[DeliveredObject]]
) -> list[OwnedObject]:
    """Return every object that an Application of the tree applies from Git; `rendered` has the objects of charts by folder."""
    return [
        OwnedObject(application, manifest)
        for application in delivered
        for source in application.sources
        if not is_templated(source.text("path"))
        for manifest in objects_at(tree, source, rendered)
    ]


def duplicate_findings(owned: Iterable[OwnedObject], uses: Iterable[ChartUse]) -> Iterator[GitopsFinding]:
    """Yield a finding for each object, and each release of a chart, that two Applications own."""
    first: dict[tuple[str, ...], OwnedObject] = {}
    for entry in owned:
        manifest = entry.manifest
        key = (entry.application.cluster, manifest.group, manifest.kind, entry.namespace, manifest.name)
        other = first.setdefault(key, entry)
        if other.application is not entry.application and manifest.name and not entry.application.is_template:
            pair = f"Applications {other.application.name} and {entry.application.name}"
            words = f"{manifest.kind} {manifest.name} belongs to {pair}, and each sync undoes the other's"
            yield finding("resource-owned-twice", manifest.where("metadata", "name"), words, "leave it to one of them")
    releases: dict[tuple[str, ...], ChartUse] = {}
    for use in uses:
        if use.application is None or use.local is not None or use.application.is_template:
            continue
        name = _release_name(use)
        release = (use.application.cluster, use.namespace, use.chart, name)
        previous = releases.setdefault(release, use)
        if previous.application is not use.application and previous.application is not None:
            pair = f"Applications {previous.application.name} and {use.application.name}"
            words = f"chart {use.chart} is installed into {use.namespace} as {name} by {pair}"
            yield finding("resource-owned-twice", use.place, words, "leave it to one of them, or give releases names of their own")


def _release_name(use: ChartUse) -> str:
    assert use.application is not None
    names = [str(source.helm.get("releaseName") or "") for source in use.application.sources]
    return next(filter(None, names), use.application.name)


# ---- scaling --------------------------------------------------------------------------------------------------------------------


def scaling_findings(manifests: Iterable[DeliveredObject], owned: Iterable[OwnedObject]) -> Iterator[GitopsFinding]:
    """Yield a finding for each workload whose replicas Git states, an autoscaler changes, and selfHeal restores."""
    scaled: dict[tuple[str, str], DeliveredObject] = {}
    for manifest in manifests:
        if manifest.kind in _SCALERS:
            target = mapping(manifest.spec.get("scaleTargetRef"))
            scaled[str(target.get("kind") or "Deployment"), str(target.get("name") or "")] = manifest
    for entry in owned:
        manifest, application = entry.manifest, entry.application
        scaler = scaled.get((manifest.kind, manifest.name))
        if scaler is None or "replicas" not in manifest.spec or not application.heals:
            continue
        if not application.ignores(manifest.kind, "replicas"):
            words = f"{scaler.kind} {scaler.name} scales {manifest.name}, and Application {application.name} scales it back"
            fix = "leave replicas out, or add /spec/replicas to ignoreDifferences with RespectIgnoreDifferences=true"
            yield finding(
                "self-heal-fights-scaling", manifest.where("spec", "replicas"), words, fix, value=manifest.spec["replicas"]
            )


def manual_scaling_findings(tree: DeliveryTree, uses: Iterable[ChartUse]) -> Iterator[GitopsFinding]:
    """Yield a finding for replicas that a comment leaves to a person, below an Application that restores them."""
    scanned: set[str] = set()
    for use in uses:
        application = use.application
        if application is None or not application.heals or application.ignores("NodeSet", "replicas"):
            continue
        for layer in use.layers:
            if layer.entry.path in scanned:
                continue
            scanned.add(layer.entry.path)
            for number, line in enumerate(tree.files.get(layer.entry.path, "").splitlines(), start=1):
                key, _, comment = line.partition("#")
                is_manual = "manual" in comment.lower() and "scale" in comment.lower()
                if key.strip().startswith("replicas:") and is_manual:
                    words = f"replicas are scaled by hand, and Application {application.name} (selfHeal) scales them back"
                    fix = "turn selfHeal off, or ignore .spec.replicas of NodeSet, with RespectIgnoreDifferences=true"
                    yield finding("self-heal-fights-scaling", (layer.entry.path, number), words, fix, value=key.strip())


# ---- deletion -------------------------------------------------------------------------------------------------------------------


def deletion_findings(delivered: Iterable[DeliveredApplication], owned: Iterable[OwnedObject]) -> Iterator[GitopsFinding]:
    """Yield findings about what disappears with a file of Git: volume claims, and everything that an Application installed."""
    entries = list(owned)
    for entry in entries:
        manifest, application = entry.manifest, entry.application
        if manifest.kind == "PersistentVolumeClaim" and application.prunes and not _is_kept(manifest):
            words = f"Application {application.name} prunes: once this file is gone or renamed, the claim and its data are deleted"
            fix = f"annotate it with {_SYNC_OPTIONS}: Prune=false,Delete=false, or give claims an Application without prune"
            yield finding("prune-deletes-claims", manifest.where("kind"), words, fix, value=manifest.name)
    parents = {entry.manifest.name: entry.application for entry in entries if entry.manifest.kind == "Application"}
    for application in delivered:
        yield from _generated(application)
        parent = parents.get(application.name)
        if parent is not None and parent.prunes and application.cascades:
            words = (
                f"Application {application.name} has a finalizer and {parent.name} prunes: without this file all it installed goes"
            )
            fix = "remove the finalizer, or prune: true of the Application above"
            yield finding("cascade-deletes", application.manifest.where("metadata", "finalizers"), words, fix)


def _generated(application: DeliveredApplication) -> Iterator[GitopsFinding]:
    """Yield a finding for an ApplicationSet that deletes what its Applications installed, once a generator no longer names them."""
    policy = mapping(application.manifest.spec.get("syncPolicy"))
    creates_only = str(policy.get("applicationsSync") or "sync") in ("create-only", "create-update")
    if application.is_template and not creates_only and policy.get("preserveResourcesOnDeletion") is not True:
        words = f"ApplicationSet {application.manifest.name} deletes an Application and all its objects once its generator lacks it"
        fix = "set syncPolicy.preserveResourcesOnDeletion: true, and applicationsSync: create-update"
        yield finding("cascade-deletes", application.manifest.where("spec"), words, fix)


def _is_kept(manifest: DeliveredObject) -> bool:
    options = manifest.annotations.get(_SYNC_OPTIONS, "").replace(" ", "").split(",")
    return "Prune=false" in options or manifest.annotations.get("helm.sh/resource-policy") == "keep"


# ---- namespaces -----------------------------------------------------------------------------------------------------------------


def namespace_findings(
    tree: DeliveryTree, delivered: Iterable[DeliveredApplication], owned: Iterable[OwnedObject]
) -> Iterator[GitopsFinding]:
    """Yield a finding for each namespace that objects go to and that nothing in the tree creates."""
    applications = list(delivered)
    created = {entry.name for entry in tree.all_manifests() if entry.kind == "Namespace"}
    created |= {entry.namespace for entry in applications if "CreateNamespace=true" in entry.options}
    # where Argo CD itself runs is there before any Application
    created |= {str(entry.manifest.metadata.get("namespace") or "") for entry in applications} | _BUILT_IN
    fix = "add CreateNamespace=true to syncPolicy.syncOptions, or a Namespace with an earlier sync wave"
    for application in applications:
        name = application.namespace
        if name not in created and name != "argocd" and not is_templated(name):
            words = f"nothing creates namespace {name}, so the first sync of Application {application.name} fails"
            yield finding("namespace-missing", application.where("destination", "namespace"), words, fix, value=name)
    for entry in owned:
        name = entry.namespace
        if name and name not in created and name != entry.application.namespace and name != "argocd":
            words = f"nothing creates namespace {name} of {entry.manifest.kind} {entry.manifest.name}"
            yield finding("namespace-missing", entry.manifest.where("metadata", "namespace"), words, fix, value=name)


def privilege_findings(
    tree: DeliveryTree, uses: Iterable[ChartUse], components: Mapping[int, Component | None]
) -> Iterator[GitopsFinding]:
    """Yield a finding for each namespace whose pods are privileged and that nothing opens for them."""
    opened = {
        entry.name
        for entry in tree.all_manifests()
        if entry.kind == "Namespace"
        and mapping(entry.metadata.get("labels")).get("pod-security.kubernetes.io/enforce") == "privileged"
    }
    delivered = [use.application for use in uses if use.application is not None]
    for application in delivered:
        policy = mapping(mapping(application.spec.get("syncPolicy")).get("managedNamespaceMetadata"))
        if mapping(policy.get("labels")).get("pod-security.kubernetes.io/enforce") == "privileged":
            opened.add(application.namespace)
    seen: set[str] = set()
    for use in uses:
        component, name = components.get(id(use)), use.namespace
        if use.application is None or component is None or not component.privileged or name in (*opened, *seen, *_BUILT_IN):
            continue
        seen.add(name)
        words = f"pods of chart {use.chart} are privileged, and namespace {name} gets no label that allows it"
        fix = "set managedNamespaceMetadata.labels pod-security.kubernetes.io/enforce: privileged"
        yield finding("namespace-not-privileged", use.application.where("destination", "namespace"), words, fix, value=name)


# ---- order ----------------------------------------------------------------------------------------------------------------------


def order_findings(
    uses: Iterable[ChartUse], components: Mapping[int, tuple[str, Component]], owned: Iterable[OwnedObject]
) -> Iterator[GitopsFinding]:
    """Yield findings about charts that are applied before the operators that they need, and waves that nothing awaits."""
    by_id: dict[str, list[tuple[ChartUse, DeliveredApplication]]] = {}
    for use in uses:
        if id(use) in components and use.application is not None:
            by_id.setdefault(components[id(use)][0], []).append((use, use.application))
    for entries in by_id.values():
        for use, application in entries:
            for needed in components[id(use)][1].needs:
                yield from _order(use, application, needed, by_id)
    providers: dict[str, list[tuple[ChartUse, DeliveredApplication]]] = {}
    for use, application in (pair for pairs in by_id.values() for pair in pairs):
        for group in {crd.partition(".")[2] for crd in components[id(use)][1].crds}:
            providers.setdefault(group, []).append((use, application))
    for entry in owned:
        yield from _custom_resource(entry, providers.get(entry.manifest.group, ()))


def _order(
    use: ChartUse,
    application: DeliveredApplication,
    needed: str,
    by_id: Mapping[str, list[tuple[ChartUse, DeliveredApplication]]],
) -> Iterator[GitopsFinding]:
    for first, earlier in by_id.get(needed, ()):
        is_elsewhere = application.is_template or earlier.is_template or earlier is application
        if not is_elsewhere and _parent_of(earlier) == _parent_of(application) and earlier.wave >= application.wave:
            words = (
                f"chart {use.chart} (wave {application.wave}) does not wait for {first.chart} (wave {earlier.wave}), which it needs"
            )
            fix = f"annotate {application.name} with argocd.argoproj.io/sync-wave: '{earlier.wave + 1}' or more"
            yield finding("sync-order", application.manifest.where("metadata"), words, fix)


def _parent_of(application: DeliveredApplication) -> str:
    """Return the folder of an Application: Applications in one folder are applied together, others by Applications of their own."""
    return application.manifest.path.rpartition("/")[0]


def _custom_resource(entry: OwnedObject, providers: Iterable[tuple[ChartUse, DeliveredApplication]]) -> Iterator[GitopsFinding]:
    """Yield a finding for an object whose kind a chart of another Application brings, and not before it."""
    mine = entry.application
    for use, provider in providers:
        is_elsewhere = provider is mine or mine.is_template or provider.is_template
        if not is_elsewhere and _parent_of(provider) == _parent_of(mine) and provider.wave >= mine.wave:
            words = f"{entry.manifest.kind} {entry.manifest.name} is applied before its CRD, which chart {use.chart} brings"
            fix = f"annotate {mine.name} with argocd.argoproj.io/sync-wave: '{provider.wave + 1}' or more"
            yield finding("sync-order", entry.manifest.where("kind"), words, fix)


# ---- settings of Argo CD --------------------------------------------------------------------------------------------------------


def settings_of(tree: DeliveryTree, uses: Iterable[ChartUse]) -> tuple[dict[str, str], tuple[str, int] | None]:
    """Return the keys of argocd-cm that the tree sets, and where; None for the place if the tree does not have argocd-cm."""
    for manifest in tree.manifests:
        if manifest.kind == "ConfigMap" and manifest.name == "argocd-cm":
            return {str(key): str(value) for key, value in mapping(manifest.data.get("data")).items()}, manifest.where("data")
    for use in uses:
        if use.chart == "argo-cd" and isinstance(settings := use.value("configs", "cm"), Mapping):
            return {str(key): str(value) for key, value in settings.items()}, use.where("configs", "cm")
    return {}, None


def settings_findings(
    tree: DeliveryTree,
    delivered: Iterable[DeliveredApplication],
    uses: list[ChartUse],
    node_sets: Mapping[str, tuple[str, int]],
) -> Iterator[GitopsFinding]:
    """Yield findings about argocd-cm. `node_sets` has the place of each group whose kind NodeSet the tree delivers."""
    settings, where = settings_of(tree, uses)
    for group, place in node_sets.items():
        key = f"{TYPE_FIELDS}{group}_NodeSet"
        old_style = settings.get(_ALL_CUSTOMIZATIONS, "")
        if key in settings or (f"{group}/NodeSet" in old_style and "knownTypeFields" in old_style):
            continue
        near = next((name for name in settings if name.lower() == key.lower()), "")
        words = f"Argo CD compares the pod template of NodeSets of {group} as text, so equal quantities differ and syncs never end"
        if where is None:
            words += "; this tree has no argocd-cm that says otherwise"
        fix = f"add {key}: '- field: spec.template.spec, type: core/v1/PodSpec' to ConfigMap argocd-cm"
        severity: Severity | None = "warning" if where is None else None
        yield finding("known-type-fields", where or place, words, fix, value=near, severity=severity)
    waved = [entry for entry in delivered if entry.wave and not entry.is_template]
    if waved and _HEALTH not in settings and "argoproj.io/Application" not in settings.get(_ALL_CUSTOMIZATIONS, ""):
        words = "Argo CD does not judge the health of Applications, so a wave does not wait until the one before is healthy"
        fix = f"add {_HEALTH} with its script to argocd-cm (docs of Argo CD: App of Apps, sync waves)"
        yield finding("wave-not-awaited", waved[0].manifest.where("metadata", "annotations"), words, fix)


def unknown_projects(delivered: Iterable[DeliveredApplication], tree: DeliveryTree) -> Iterator[UncheckedPart]:
    """Yield an unchecked part for each AppProject that the tree does not have."""
    present = {entry.name for entry in tree.all_manifests() if entry.kind == "AppProject"} | {"default", ""}
    named = {str(entry.spec.get("project") or ""): entry.manifest.path for entry in delivered}
    for name, path in sorted(named.items()):
        if name not in present and not is_templated(name):
            yield UncheckedPart(
                path, f"AppProject {name} is not in this tree, so nothing says if it allows sources and destinations"
            )
