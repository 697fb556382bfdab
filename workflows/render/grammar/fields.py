"""The three closed lists as data: fields that both engines execute, fields only Argo acts on (noted), fields that are refused.

A field in none of them is unknown and refused as well: nothing is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from workflows.render.grammar.patches import ARGOS_CONTAINERS

TEXT, PLAIN, VALUE, NUMBER, COUNT, FLAG, ANY = "text", "plain", "value", "number", "count", "flag", "any"


@dataclass(frozen=True, slots=True)
class Leaf:
    """An executed scalar, typed as the API server types it.

    `text` is a string that may hold `{{...}}`, `plain` one that may not, `value` any scalar with tags, `number` a whole number,
    `count` one that may be written as a string, `flag` true or false, `any` JSON with tags.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class Table:
    """An executed object with these fields; `needs` must be there."""

    fields: Mapping[str, Rule]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Listing:
    """An executed list."""

    item: Rule


@dataclass(frozen=True, slots=True)
class Named:
    """An executed object with free keys."""

    value: Rule


@dataclass(frozen=True, slots=True)
class Noted:
    """Argo acts on it, the local engine does not; the journal says so."""

    sentence: str = "only Argo acts on this"


@dataclass(frozen=True, slots=True)
class Refused:
    """Neither engine gets it."""

    sentence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Only:
    """Noted where it is this very text; any other is refused."""

    text: str
    other: Refused


Rule = Leaf | Table | Listing | Named | Noted | Refused | Only

text, plain, value, number, count = Leaf(TEXT), Leaf(PLAIN), Leaf(VALUE), Leaf(NUMBER), Leaf(COUNT)
flag, anything = Leaf(FLAG), Leaf(ANY)
noted = Noted()
_ARTIFACTS = Refused("artifacts are not part of the grammar", "pass keys of the run store as parameters")
_KINDS = Refused("this kind of template is not part of the grammar", "use container, dag, steps or suspend")
_SOURCES = Refused("a value from this source is not part of the grammar", "give the value itself, or a file below /bringup")


def _noted(*names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, noted)


def _refused(rule: Refused, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


_PLACEMENT = _noted(
    "affinity", "nodeSelector", "tolerations", "schedulerName", "priorityClassName", "hostAliases", "securityContext"
)
_PATCH = Only(ARGOS_CONTAINERS, Refused("a patch of the pod could change what runs", "say it in the template"))
_ACCOUNTS = _noted("serviceAccountName", "automountServiceAccountToken", "executor", "volumes") | {"podSpecPatch": _PATCH}

ARGUMENT = Table(
    {
        "name": plain,
        "value": value,
        "enum": Listing(value),
        "description": plain,
        "default": value,
        "valueFrom": _SOURCES,
        "globalName": plain,
    },
    ("name",),
)
ARGUMENTS = Table({"parameters": Listing(ARGUMENT), "artifacts": _ARTIFACTS})
INPUTS = Table(
    {
        "parameters": Listing(
            Table(
                {
                    "name": plain,
                    "value": value,
                    "default": value,
                    "enum": Listing(value),
                    "description": plain,
                    "valueFrom": _SOURCES,
                },
                ("name",),
            )
        ),
        "artifacts": _ARTIFACTS,
    }
)
VALUE_FROM = Table(
    {
        "path": text,
        "parameter": text,
        "expression": text,
        "default": value,
        "supplied": Table({}),
        **_refused(_SOURCES, "configMapKeyRef", "event", "jqFilter", "jsonPath"),
    }
)
OUTPUTS = Table(
    {
        "parameters": Listing(
            Table({"name": plain, "valueFrom": VALUE_FROM, "globalName": plain, "description": plain}, ("name", "valueFrom"))
        ),
        **_refused(_ARTIFACTS, "artifacts"),
        **_refused(Refused("results are written by the engine, not declared"), "result", "exitCode"),
    }
)
RETRY = Table(
    {
        "limit": count,
        "retryPolicy": plain,
        "expression": text,
        "backoff": Table({"duration": plain, "factor": count, "cap": plain, "maxDuration": plain}, ("duration",)),
        "affinity": noted,
    }
)
ENV = Table(
    {
        "name": plain,
        "value": text,
        "valueFrom": Refused("a variable from this source is not part of the grammar", "secrets are files: /bringup/secrets/NAME"),
    },
    ("name",),
)
_PROBES = Refused("probes and life-cycle handlers are not part of the grammar", "let the command itself check")
CONTAINER = Table(
    {
        "command": Listing(text),
        "args": Listing(text),
        "env": Listing(ENV),
        "name": plain,
        **_noted("image", "imagePullPolicy", "resources", "securityContext", "volumeMounts", "ports"),
        **_noted("terminationMessagePath", "terminationMessagePolicy"),
        **_refused(Refused("variables from a whole object are not part of the grammar", "name each variable"), "envFrom"),
        **_refused(Refused("a container begins in its own folder locally", "use absolute paths below /bringup"), "workingDir"),
        **_refused(Refused("standard input is closed"), "stdin", "stdinOnce", "tty"),
        **_refused(_PROBES, "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "restartPolicy", "volumeDevices"),
    },
    ("command",),
)
REFERENCE = Table(
    {
        "name": plain,
        "template": plain,
        "clusterScope": Refused(
            "cluster-wide templates are not part of the grammar", "use a WorkflowTemplate of the same namespace"
        ),
    },
    ("name", "template"),
)
HOOK = Table({"template": plain, "templateRef": REFERENCE, "arguments": ARGUMENTS, "expression": plain})


TASK_HOOKS = Table(
    {
        "exit": HOOK,
        **_refused(Refused("only the hook named 'exit' is executed on a task", "use depends"), "running", "failed", "succeeded"),
    }
)
SEQUENCE = Table({"start": value, "end": value, "count": value, "format": text})
TASK = Table(
    {
        "name": plain,
        "template": plain,
        "templateRef": REFERENCE,
        "arguments": ARGUMENTS,
        "when": text,
        "withItems": Listing(anything),
        "withParam": text,
        "withSequence": SEQUENCE,
        "depends": plain,
        "dependencies": Listing(plain),
        "continueOn": Table({"failed": flag, "error": flag}),
        "onExit": plain,
        "hooks": TASK_HOOKS,
        "inline": Refused("templates inside of a task are not part of the grammar", "give the template a name"),
    },
    ("name",),
)
STEP = Table({key: rule for key, rule in TASK.fields.items() if key not in ("depends", "dependencies")}, ("name",))
LOCKS = Table(
    {"mutexes": Listing(Table({"name": plain, "namespace": plain}, ("name",))), "semaphores": Refused("semaphores need a cluster")}
)
METADATA = Noted("labels and annotations of pods exist only on Argo")
TEMPLATE = Table(
    {
        "name": plain,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "container": CONTAINER,
        "suspend": Table({"duration": plain}),
        "dag": Table({"tasks": Listing(TASK), "target": plain, "failFast": flag}, ("tasks",)),
        "steps": Listing(Listing(STEP)),
        "retryStrategy": RETRY,
        "timeout": plain,
        "activeDeadlineSeconds": count,
        "parallelism": number,
        "failFast": flag,
        "synchronization": LOCKS,
        "metadata": METADATA,
        "annotations": METADATA,
        **_PLACEMENT,
        **_ACCOUNTS,
        **_noted("pendingTimeout", "archiveLocation", "podResources", "resourceClaims", "metrics"),
        **_refused(_KINDS, "script", "containerSet", "resource", "http", "plugin", "data"),
        **_refused(Refused("one process a pod: no init, side or daemon containers"), "initContainers", "sidecars", "daemon"),
        **_refused(Refused("results are not remembered between runs", "verbs reuse by input digest"), "memoize"),
    },
    ("name",),
)
SPEC = Table(
    {
        "entrypoint": plain,
        "arguments": ARGUMENTS,
        "templates": Listing(TEMPLATE),
        "onExit": plain,
        "hooks": Named(HOOK),
        "parallelism": number,
        "activeDeadlineSeconds": number,
        "retryStrategy": RETRY,
        "suspend": flag,
        "workflowTemplateRef": Table({"name": plain, "clusterScope": REFERENCE.fields["clusterScope"]}, ("name",)),
        "synchronization": Noted("locks between workflows exist only on Argo; a run directory has one engine"),
        "podGC": noted,
        "ttlStrategy": noted,
        "podMetadata": METADATA,
        "workflowMetadata": METADATA,
        **_PLACEMENT,
        **_ACCOUNTS,
        **_noted("imagePullSecrets", "dnsConfig", "dnsPolicy", "hostNetwork", "podDisruptionBudget", "archiveLogs", "metrics"),
        **_noted("podPriorityClassName", "priority", "artifactRepositoryRef", "volumeClaimGC", "podResources", "resourceClaims"),
        **_refused(
            Refused("a default for every template hides what a template does", "say it in each template"), "templateDefaults"
        ),
        **_refused(
            Refused("claims made for one workflow are not part of the grammar", "mount the run store"), "volumeClaimTemplates"
        ),
        **_refused(Refused("the engine sets this, not the manifest", "use the engine's own command"), "shutdown"),
        **_refused(_ARTIFACTS, "artifactGC"),
        **_refused(_KINDS, "executorPlugins"),
    }
)
WORKFLOW = Table(
    {
        "apiVersion": plain,
        "kind": plain,
        "metadata": Table(
            {
                "name": plain,
                "generateName": plain,
                "namespace": plain,
                "labels": Named(plain),
                "annotations": Named(plain),
                **_noted("finalizers", "ownerReferences"),
            }
        ),
        "spec": SPEC,
        "status": Refused("a status is written by an engine, never given"),
    },
    ("metadata", "spec"),
)
