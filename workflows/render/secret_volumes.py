"""Which secret files the pod of each task gets: those that its task names, and the kubeconfig where its verb acts on the target.

Every pod has its own at the one place below ROOT; tasks that need the same share a volume. A pod that needs none has no such mount.
What a pod takes out of its log and records is what it has here, and what its run keeps in the store.
"""

from collections.abc import Iterator
from typing import Any

from hera.workflows import models as m

from steps.contract import paths
from steps.contract.task import Task, Verb
from workflows.plan.model import Plan
from workflows.render import names
from workflows.stages.access import KUBECONFIG, SecretFile

FOLDER = "secrets"
_NO_TARGET = {Verb.ANNOUNCE, Verb.BUILD, Verb.CONFIRM, Verb.PUBLISH, Verb.REPORT}
"""Verbs that read and write nothing in the target."""
_NAMED = {Verb.ANNOUNCE: ("webhook", "ca"), Verb.CONFIRM: (), Verb.REPORT: ()}
"""Verbs whose other arguments are words of people, which may be names of secret files by chance: the arguments that name one."""


def needed(one: Task, files: tuple[SecretFile, ...]) -> tuple[str, ...]:
    """Names of the secret files that a task is told, sorted: whatever its arguments and expectations give by such a name."""
    known = {file.name for file in files}
    if one.verb in _NAMED:
        told = {str(one.arguments[name]) for name in _NAMED[one.verb] if name in one.arguments}
    else:
        told = set(_texts([one.arguments, one.expectations]))
    told |= set() if one.verb in _NO_TARGET else {KUBECONFIG}
    return tuple(sorted(known & told))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _texts(inner)


class SecretVolumes:
    """The volumes of a plan's secret files: one for each distinct set that a task needs, numbered in running order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sets = list(dict.fromkeys(chosen for one in plan.tasks if (chosen := needed(one, plan.secrets))))

    def mounts(self, one: Task) -> list[m.VolumeMount]:
        """What the container of a task mounts: nothing, or its one volume."""
        chosen = needed(one, self._plan.secrets)
        place = f"{paths.ROOT}/{FOLDER}"
        return [m.VolumeMount(name=self._name(chosen), mount_path=place, read_only=True)] if chosen else []

    def volumes(self) -> list[m.Volume]:
        """All of them; Argo gives a pod those that it mounts (`addVolumeReferences`)."""
        return [
            m.Volume(name=self._name(chosen), projected=m.ProjectedVolumeSource(sources=self._sources(chosen), default_mode=0o400))
            for chosen in self._sets
        ]

    def _name(self, chosen: tuple[str, ...]) -> str:
        return f"{FOLDER}-{self._sets.index(chosen) + 1}"

    def _sources(self, chosen: tuple[str, ...]) -> list[m.VolumeProjection]:
        """Keys of Kubernetes Secrets as the spec names them, all others from one Secret made at submit, or one ConfigMap where they
        are public."""
        named: dict[str, list[m.KeyToPath]] = {}
        public = [name for name in chosen if name in self._plan.public]
        for file in self._plan.secrets:
            if file.name in chosen and file.name not in public:
                secret = file.secret or f"bringup-secrets-{names.short(self._plan.inputs)}"
                named.setdefault(secret, []).append(m.KeyToPath(key=file.key or file.name, path=file.name))
        found = [
            m.VolumeProjection(secret=m.SecretProjection(name=secret, items=items, optional=True))
            for secret, items in sorted(named.items())
        ]
        if public:
            told = m.ConfigMapProjection(name=public_name(self._plan), items=[m.KeyToPath(key=name, path=name) for name in public])
            found.append(m.VolumeProjection(config_map=told))
        return found


def public_name(plan: Plan) -> str:
    """The ConfigMap of the files that are no secrets."""
    return f"bringup-public-{names.short(plan.inputs)}"
