"""The linter's rule for every field of a manifest: executed by both engines, noted (only Argo acts on it), or refused.

A field without a rule is unknown and refused as well, so that nothing is ignored silently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

_RESTRICTED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
ARGOS_CONTAINERS = json.dumps(
    {
        "initContainers": [{"name": "init", "securityContext": _RESTRICTED}],
        "containers": [{"name": "wait", "securityContext": _RESTRICTED}],
    }
)
"""The only `podSpecPatch` that a manifest may have: it restricts the containers that Argo adds to each pod.

Argo sets no security context on these containers unless its ConfigMap has `executor.securityContext` (workflowpod.go of 4.1.2), so
a namespace at the restricted level of Pod Security would admit no pod.
"""

TEXT, PLAIN, VALUE, NUMBER, COUNT, FLAG, ANY = "text", "plain", "value", "number", "count", "flag", "any"


@dataclass(frozen=True, slots=True)
class ScalarRule:
    """Rule for a single value that both engines use; `kind` says which values the API server accepts.

    `text` is a string that may contain `{{...}}`, `plain` one that may not, `value` any scalar with tags, `number` a whole number,
    `count` a whole number that may be written as a string, `flag` true or false, `any` JSON with tags.
    """

    kind: str


@dataclass(frozen=True, slots=True)
class ObjectRule:
    """Rule for an object that both engines use: a rule for each allowed field, and in `needs` the required fields."""

    fields: Mapping[str, Rule]
    needs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ListRule:
    """Rule for a list that both engines use; `item` is the rule for its items."""

    item: Rule


@dataclass(frozen=True, slots=True)
class MapRule:
    """Rule for an object with arbitrary keys that both engines use; `value` is the rule for its values."""

    value: Rule


@dataclass(frozen=True, slots=True)
class NotedRule:
    """Rule for a field that Argo acts on and the local engine does not: the manifest runs, and the journal notes the field."""

    sentence: str = "only Argo acts on this"


@dataclass(frozen=True, slots=True)
class RefusedRule:
    """Rule for a field that no manifest may have; `sentence` says why, `hint` what to use instead."""

    sentence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ExactTextRule:
    """Rule for a field that is noted if its value is exactly `text`; otherwise the rule `other` refuses it."""

    text: str
    other: RefusedRule


Rule = ScalarRule | ObjectRule | ListRule | MapRule | NotedRule | RefusedRule | ExactTextRule

text, plain, value, number, count = ScalarRule(TEXT), ScalarRule(PLAIN), ScalarRule(VALUE), ScalarRule(NUMBER), ScalarRule(COUNT)
flag, anything = ScalarRule(FLAG), ScalarRule(ANY)
noted = NotedRule()
_ARTIFACTS = RefusedRule("artifacts are not supported by both engines", "pass keys of the run store as parameters")
_KINDS = RefusedRule("this kind of template is not supported by both engines", "use container, dag, steps or suspend")
_SOURCES = RefusedRule(
    "a value from this source is not supported by both engines", "give the value itself, or a file below /bringup"
)


def _noted(*names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, noted)


def _refused(rule: RefusedRule, *names: str) -> dict[str, Rule]:
    return dict.fromkeys(names, rule)


_PLACEMENT = _noted(
    "affinity", "nodeSelector", "tolerations", "schedulerName", "priorityClassName", "hostAliases", "securityContext"
)
_PATCH = ExactTextRule(ARGOS_CONTAINERS, RefusedRule("a patch of the pod could change what runs", "set the field in the template"))
_ACCOUNTS = _noted("serviceAccountName", "automountServiceAccountToken", "executor", "volumes") | {"podSpecPatch": _PATCH}

ARGUMENT = ObjectRule(
    {
        "name": plain,
        "value": value,
        "enum": ListRule(value),
        "description": plain,
        "default": value,
        "valueFrom": _SOURCES,
        "globalName": plain,
    },
    ("name",),
)
ARGUMENTS = ObjectRule({"parameters": ListRule(ARGUMENT), "artifacts": _ARTIFACTS})
INPUTS = ObjectRule(
    {
        "parameters": ListRule(
            ObjectRule(
                {
                    "name": plain,
                    "value": value,
                    "default": value,
                    "enum": ListRule(value),
                    "description": plain,
                    "valueFrom": _SOURCES,
                },
                ("name",),
            )
        ),
        "artifacts": _ARTIFACTS,
    }
)
VALUE_FROM = ObjectRule(
    {
        "path": text,
        "parameter": text,
        "expression": text,
        "default": value,
        "supplied": ObjectRule({}),
        **_refused(_SOURCES, "configMapKeyRef", "event", "jqFilter", "jsonPath"),
    }
)
OUTPUTS = ObjectRule(
    {
        "parameters": ListRule(
            ObjectRule({"name": plain, "valueFrom": VALUE_FROM, "globalName": plain, "description": plain}, ("name", "valueFrom"))
        ),
        **_refused(_ARTIFACTS, "artifacts"),
        **_refused(RefusedRule("results are written by the engine and cannot be declared"), "result", "exitCode"),
    }
)
RETRY = ObjectRule(
    {
        "limit": count,
        "retryPolicy": plain,
        "expression": text,
        "backoff": ObjectRule({"duration": plain, "factor": count, "cap": plain, "maxDuration": plain}, ("duration",)),
        "affinity": noted,
    }
)
ENV = ObjectRule(
    {
        "name": plain,
        "value": text,
        "valueFrom": RefusedRule(
            "a variable from this source is not supported by both engines", "secrets are files: /bringup/secrets/NAME"
        ),
    },
    ("name",),
)
_PROBES = RefusedRule("probes and life-cycle handlers are not supported by both engines", "let the command itself check")
CONTAINER = ObjectRule(
    {
        "command": ListRule(text),
        "args": ListRule(text),
        "env": ListRule(ENV),
        "name": plain,
        **_noted("image", "imagePullPolicy", "resources", "securityContext", "volumeMounts", "ports"),
        **_noted("terminationMessagePath", "terminationMessagePolicy"),
        **_refused(RefusedRule("variables from a whole object are not supported by both engines", "name each variable"), "envFrom"),
        **_refused(
            RefusedRule("the local engine starts each command in a folder of its own", "use absolute paths below /bringup"),
            "workingDir",
        ),
        **_refused(RefusedRule("the command gets no standard input", "read a file below /bringup"), "stdin", "stdinOnce", "tty"),
        **_refused(_PROBES, "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "restartPolicy", "volumeDevices"),
    },
    ("command",),
)
REFERENCE = ObjectRule(
    {
        "name": plain,
        "template": plain,
        "clusterScope": RefusedRule(
            "cluster-wide templates are not supported by both engines", "use a WorkflowTemplate of the same namespace"
        ),
    },
    ("name", "template"),
)
HOOK = ObjectRule({"template": plain, "templateRef": REFERENCE, "arguments": ARGUMENTS, "expression": plain})


TASK_HOOKS = ObjectRule(
    {
        "exit": HOOK,
        **_refused(RefusedRule("a task may have only the hook named 'exit'", "use depends"), "running", "failed", "succeeded"),
    }
)
SEQUENCE = ObjectRule({"start": value, "end": value, "count": value, "format": text})
TASK = ObjectRule(
    {
        "name": plain,
        "template": plain,
        "templateRef": REFERENCE,
        "arguments": ARGUMENTS,
        "when": text,
        "withItems": ListRule(anything),
        "withParam": text,
        "withSequence": SEQUENCE,
        "depends": plain,
        "dependencies": ListRule(plain),
        "continueOn": ObjectRule({"failed": flag, "error": flag}),
        "onExit": plain,
        "hooks": TASK_HOOKS,
        "inline": RefusedRule("templates inside a task are not supported by both engines", "give the template a name"),
    },
    ("name",),
)
STEP = ObjectRule({key: rule for key, rule in TASK.fields.items() if key not in ("depends", "dependencies")}, ("name",))
LOCKS = ObjectRule(
    {
        "mutexes": ListRule(ObjectRule({"name": plain, "namespace": plain}, ("name",))),
        "semaphores": RefusedRule("semaphores are not supported by both engines", "use mutexes"),
    }
)
METADATA = NotedRule("labels and annotations of pods exist only on Argo")
TEMPLATE = ObjectRule(
    {
        "name": plain,
        "inputs": INPUTS,
        "outputs": OUTPUTS,
        "container": CONTAINER,
        "suspend": ObjectRule({"duration": plain}),
        "dag": ObjectRule({"tasks": ListRule(TASK), "target": plain, "failFast": flag}, ("tasks",)),
        "steps": ListRule(ListRule(STEP)),
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
        **_refused(
            RefusedRule("init, side and daemon containers are not supported by both engines", "use one container"),
            "initContainers",
            "sidecars",
            "daemon",
        ),
        **_refused(RefusedRule("memoization is not supported by both engines", "verbs reuse results of equal input"), "memoize"),
    },
    ("name",),
)
SPEC = ObjectRule(
    {
        "entrypoint": plain,
        "arguments": ARGUMENTS,
        "templates": ListRule(TEMPLATE),
        "onExit": plain,
        "hooks": MapRule(HOOK),
        "parallelism": number,
        "activeDeadlineSeconds": number,
        "retryStrategy": RETRY,
        "suspend": flag,
        "workflowTemplateRef": ObjectRule({"name": plain, "clusterScope": REFERENCE.fields["clusterScope"]}, ("name",)),
        "synchronization": NotedRule("locks between workflows exist only on Argo; the local engine locks its run directory"),
        "podGC": noted,
        "ttlStrategy": noted,
        "podMetadata": METADATA,
        "workflowMetadata": METADATA,
        **_PLACEMENT,
        **_ACCOUNTS,
        **_noted("imagePullSecrets", "dnsConfig", "dnsPolicy", "hostNetwork", "podDisruptionBudget", "archiveLogs", "metrics"),
        **_noted("podPriorityClassName", "priority", "artifactRepositoryRef", "volumeClaimGC", "podResources", "resourceClaims"),
        **_refused(
            RefusedRule("a default for every template hides what a template does", "set the field in each template"),
            "templateDefaults",
        ),
        **_refused(
            RefusedRule("volume claims of one workflow are not supported by both engines", "mount the run store"),
            "volumeClaimTemplates",
        ),
        **_refused(RefusedRule("only an engine may set this field", "cancel the run by the engine's own command"), "shutdown"),
        **_refused(_ARTIFACTS, "artifactGC"),
        **_refused(_KINDS, "executorPlugins"),
    }
)
WORKFLOW = ObjectRule(
    {
        "apiVersion": plain,
        "kind": plain,
        "metadata": ObjectRule(
            {
                "name": plain,
                "generateName": plain,
                "namespace": plain,
                "labels": MapRule(plain),
                "annotations": MapRule(plain),
                **_noted("finalizers", "ownerReferences"),
            }
        ),
        "spec": SPEC,
        "status": RefusedRule("only an engine may write the status", "remove it"),
    },
    ("metadata", "spec"),
)
