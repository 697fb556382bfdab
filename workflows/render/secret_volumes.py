"""Volumes with secret files for pods: a task's pod gets the files that the task names, and the kubeconfig if its verb needs it.

Every pod mounts them at the same place below ROOT. Tasks that need the same files share a volume, and a pod that needs none mounts
none. A pod redacts the content of these files, and of files that its run keeps in the store, in its log and records.
"""

from hera.workflows import models as m

from steps.contract import paths
from steps.contract.task import Task, Verb
from workflows.plan.model import Plan
from workflows.render import names
from workflows.render.grammar.tags import strings
from workflows.stages.host_access import KUBECONFIG, SecretFile

FOLDER = "secrets"
_NO_TARGET = {Verb.ANNOUNCE, Verb.BUILD, Verb.CONFIRM, Verb.PUBLISH, Verb.REPORT}
"""Verbs that do not access the target cluster and so need no kubeconfig."""
_NAMED = {Verb.ANNOUNCE: ("webhook", "ca"), Verb.CONFIRM: (), Verb.REPORT: ()}
"""Verb → arguments that name secret files; other texts of these tasks could equal a file's name by chance."""


def needed_secrets(task: Task, files: tuple[SecretFile, ...]) -> tuple[str, ...]:
    """Return the sorted names of the secret files that a task's pod mounts.

    These are the files that its arguments and expectations name, and the kubeconfig if its verb accesses the target cluster.
    """
    known = {file.name for file in files}
    if task.verb in _NAMED:
        texts = {str(task.arguments[name]) for name in _NAMED[task.verb] if name in task.arguments}
    else:
        # any text that equals a file's name counts, so no verb's argument shape has to be known here
        texts = {text for _, text in strings([task.arguments, task.expectations])}
    texts |= set() if task.verb in _NO_TARGET else {KUBECONFIG}
    return tuple(sorted(known & texts))


class SecretVolumes:
    """The volumes of a plan's secret files: one for each distinct set of files that a task needs, numbered in running order."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._sets = list(dict.fromkeys(chosen for task in plan.tasks if (chosen := needed_secrets(task, plan.secrets))))

    def mounts(self, task: Task) -> list[m.VolumeMount]:
        """Return the mount of the volume that a task's container needs, in a list; empty if the task needs no secret file."""
        chosen = needed_secrets(task, self._plan.secrets)
        place = f"{paths.ROOT}/{FOLDER}"
        return [m.VolumeMount(name=self._name(chosen), mount_path=place, read_only=True)] if chosen else []

    def volumes(self) -> list[m.Volume]:
        """Return the volumes of all tasks; Argo adds to a pod only those that the pod mounts (`addVolumeReferences`)."""
        return [
            m.Volume(name=self._name(chosen), projected=m.ProjectedVolumeSource(sources=self._sources(chosen), default_mode=0o400))
            for chosen in self._sets
        ]

    def _name(self, chosen: tuple[str, ...]) -> str:
        return f"{FOLDER}-{self._sets.index(chosen) + 1}"

    def _sources(self, chosen: tuple[str, ...]) -> list[m.VolumeProjection]:
        """Return the sources of one volume: Secrets that the spec names, a ConfigMap for public files, a Secret for other files.

        bringup creates the ConfigMap and the last Secret when it submits a run.
        """
        by_secret: dict[str, list[m.KeyToPath]] = {}
        public = [name for name in chosen if name in self._plan.public]
        for file in self._plan.secrets:
            if file.name in chosen and file.name not in public:
                secret = file.secret or f"bringup-secrets-{names.short(self._plan.inputs)}"
                by_secret.setdefault(secret, []).append(m.KeyToPath(key=file.key or file.name, path=file.name))
        projections = [
            m.VolumeProjection(secret=m.SecretProjection(name=secret, items=items, optional=True))
            for secret, items in sorted(by_secret.items())
        ]
        if public:
            public_files = m.ConfigMapProjection(
                name=public_name(self._plan), items=[m.KeyToPath(key=name, path=name) for name in public]
            )
            projections.append(m.VolumeProjection(config_map=public_files))
        return projections


def public_name(plan: Plan) -> str:
    """Return the name of the ConfigMap with those secret files that are public, such as known hosts (`Plan.public`)."""
    return f"bringup-public-{names.short(plan.inputs)}"
