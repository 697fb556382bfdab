"""Stage factory_storage: the shared folder of a factory as a volume in each project, proven by a file that every node reads."""

from __future__ import annotations

from typing import Final

from steps.contract.task import Verb
from workflows.stages import manifest_objects, rights
from workflows.stages.factory_site import FactorySite, control_step, judge, metadata, namespace
from workflows.stages.stage import Change, Object, Rule, Stage, Step, task

ID: Final = "factory_storage"
CONTROL, FUNCTIONAL = f"{ID}/control", f"{ID}/functional"
CLAIM, CHECK = "share", "share"
DEADLINE, CHECK_SECONDS, READ_SECONDS = 300, 600, 120


def build(site: FactorySite) -> Stage | None:
    """Return stage factory_storage, or None if the spec has no shared folder."""
    share = site.factory.share
    if share is None:
        return None
    projects = tuple(site.factory.projects)
    claims = {f"{name}/{CLAIM}": _volume_name(name) for name in projects}
    applies = tuple(_apply(site, name) for name in projects)
    reads = (
        Rule(groups=("",), resources=("persistentvolumeclaims",), verbs=("get",), namespaces=projects),
        *rights.DIAGNOSE,
    )
    after = tuple(step.name for step in applies)
    control = control_step(ID, DEADLINE, {"claims": claims}, reads, after=after, stable_seconds=0, claims=list(claims))
    return Stage(
        id=ID,
        title="Shared storage",
        steps=(*applies, control, _functional(site), judge(site, ID, {"control": CONTROL, "functional": FUNCTIONAL})),
        gates=(CONTROL, FUNCTIONAL),
        changes=(Change(what=f"mount {share.server}:{share.path} as claim {CLAIM}", where=", ".join(projects)),),
        rollback=f"kubectl delete pvc {CLAIM} in each project; the folder itself stays",
    )


def _apply(site: FactorySite, project: str) -> Step:
    """Return the task that applies the objects of one project; one for each, because a task file holds at most 8 kB."""
    verbs = ("get", "create", "patch")
    objects = [namespace(project, **{"bringup/project": project}), *_pair(site, project)]
    return Step(
        task=task(ID, f"apply_{project.replace('-', '_')}", Verb.APPLY, deadline=300, arguments={"objects": objects}),
        rules=(
            *rights.CLAIM,
            Rule(groups=("",), resources=("namespaces", "persistentvolumes"), verbs=verbs),
            Rule(groups=("",), resources=("persistentvolumeclaims",), verbs=verbs, namespaces=(project,)),
            *rights.DIAGNOSE,
        ),
    )


def _volume_name(project: str) -> str:
    return f"{CLAIM}-{project}"


def _pair(site: FactorySite, project: str) -> list[Object]:
    """Return the volume of the shared folder for a project, and the claim that is bound to it and to no other volume."""
    share = site.factory.share
    assert share is not None
    size = {"storage": "1Ti"}  # NFS has no sizes; Kubernetes wants one
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": metadata(_volume_name(project)),
        "spec": {
            "capacity": size,
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": project, "name": CLAIM},
            "nfs": {"server": share.server, "path": share.path},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata(CLAIM, project),
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": _volume_name(project),
            "resources": {"requests": size},
        },
    }
    return [volume, claim]


def _functional(site: FactorySite) -> Step:
    """Return the task whose pods write to the folder from one node and read on every node."""
    share = site.factory.share
    assert share is not None
    nonce = {"name": "NONCE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['batch.kubernetes.io/controller-uid']"}}}
    env = [manifest_objects.node_name(), nonce, {"name": "WAIT_SECONDS", "value": str(READ_SECONDS)}]
    script = manifest_objects.script("shared_volume.sh")
    mounts = [{"name": "share", "mountPath": "/share"}]
    # the pods mount the folder by themselves: a claim belongs to one namespace
    pod = {
        "containers": [manifest_objects.container(site.factory.check_image, script, env=env, volumeMounts=mounts)],
        "volumes": [{"name": "share", "nfs": {"server": share.server, "path": share.path}}],
    }
    return manifest_objects.check_step(
        ID,
        FUNCTIONAL,
        CHECK,
        [manifest_objects.per_node_job(ID, CHECK, pod, seconds=CHECK_SECONDS)],
        deadline=CHECK_SECONDS + 60,
        expectations={},
        waits_for=("control",),
        passed=(),
        select="all",
    )
