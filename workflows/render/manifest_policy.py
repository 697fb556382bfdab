"""Rules for manifests that bringup renders, in addition to those of the linter. A breach is reported as one sentence.

Containers run only `python -m steps VERB`, paths start with /bringup, defaults of outputs let nothing pass, and Argo's executor has
one account with a token Secret. One other path is allowed: the published folder in pods of verb `publish`, and for reading in the
pod that a schedule starts.
"""

import re
from collections.abc import Iterator, Set
from typing import Any

from steps.contract import paths, stage_contracts, task
from steps.contract.objects import login_pods
from steps.contract.runs import approval, lost_attempts
from workflows.render import claim_volumes, from_git
from workflows.render.building import CAPABILITIES
from workflows.stages import EVERY

Object = dict[str, Any]
COMMAND = ["python", "-m", "steps"]
VERBS = {verb.value for verb in task.Verb}
SAFE_DEFAULTS = {
    "verdict": "inconclusive",
    "shards": "[]",
    "agents": "[]",
    **{entry.output: entry.proceed for entry in stage_contracts.declared_shortcuts(EVERY)},
    **approval.PARAMETERS,
    login_pods.OUTPUT: login_pods.SOME,
}
"""Output parameter → its required default, which lets nothing pass. A manifest may have no other output parameters."""

_FORBIDDEN_FIELDS = ("privileged", "procMount", "seLinuxOptions")
"""Fields of a security context that no container may set."""
_OUTPUT_OF = re.compile(r"\{\{=?\s*tasks\.([A-Za-z0-9_-]+)\.outputs\.")
_ALLOWED_ABSOLUTE = f"{paths.ROOT}/"


def breaches(template: Object) -> tuple[str, ...]:
    """Return a sentence with its place for every breach of these rules in a WorkflowTemplate or Workflow."""
    spec = template.get("spec", {})
    result = list(_whole(spec))
    for number, entry in enumerate(spec.get("templates", ())):
        place = f"spec.templates[{number}] ({entry.get('name')})"
        result += [f"{place}: {problem}" for problem in _template(entry)]
    return tuple(result)


def starter_breaches(template: Object) -> tuple[str, ...]:
    """Return the breaches in the template that the schedule of a branch starts: one pod, which submits a run.

    Only this pod may have a token of the home cluster. It runs no verb of `steps`, and there is nothing to report or seal.
    """
    spec = template["spec"]
    templates: list[Object] = spec.get("templates") or []
    if len(templates) != 1 or "container" not in templates[0]:
        return ("spec.templates: a Workflow that starts a run is one container",)
    result = [] if (spec.get("executor") or {}).get("serviceAccountName") else ["spec.executor.serviceAccountName is missing"]
    container = templates[0]["container"]
    kind, verb = (*(container.get("args") or ()), "", "")[:2]
    if container.get("command") != list(from_git.COMMAND) or kind not in from_git.KINDS or verb != from_git.VERB:
        expected = " or ".join(" ".join([*from_git.COMMAND, known, from_git.VERB]) for known in from_git.KINDS)
        result.append(f"spec.templates[0]: command must be {expected}")
    security = _security(container.get("securityContext") or {}, builds=False)
    published = claim_volumes.outside_paths(templates[0], is_read_only=True)
    problems = (*_confinement(templates[0], published), *security, *_outputs(templates[0]))
    return (*result, *(f"spec.templates[0]: {problem}" for problem in problems))


def _whole(spec: Object) -> Iterator[str]:
    """Yield the breaches in fields of the spec outside its templates."""
    if not spec.get("onExit"):
        yield "spec.onExit is missing: every run ends with report and seal; name the template that holds them"
    if not (spec.get("synchronization") or {}).get("mutexes"):
        yield "spec.synchronization.mutexes: two runs must not change one cluster at a time; add a workflow-level mutex"
    # pods are made only here: a Workflow with `workflowTemplateRef` takes the fields about tokens from there
    if spec.get("templates") and spec.get("automountServiceAccountToken") is not False:
        yield "spec.automountServiceAccountToken must be false: a step needs no token of home"
    elif spec.get("templates") and not (spec.get("executor") or {}).get("serviceAccountName"):
        yield "spec.executor.serviceAccountName is missing: without it Argo makes no pod that has no mounted token"


def _template(template: Object) -> Iterator[str]:
    if "container" in template:
        yield from _container(template)
    if "suspend" in template:
        yield from _suspend(template)
    tasks = {str(entry.get("name")): entry for entry in template.get("dag", {}).get("tasks") or ()}
    for name, entry in tasks.items():
        for read in _OUTPUT_OF.findall(str(entry)):
            # a task that starts only after the other one has succeeded finds its outputs
            succeeded = str(entry.get("depends", "")) == f"{read}.Succeeded"
            if tasks.get(read, {}).get("when") and not succeeded:
                yield f"task {name} reads an output of {read}, which has `when` and may leave none; use `depends` instead"
    if "script" in template:
        yield "script templates are not allowed in a manifest of bringup; use a container that runs `python -m steps VERB`"
    yield from _outputs(template)


def _container(template: Object) -> Iterator[str]:
    container = template["container"]
    arguments = [str(argument) for argument in container.get("args") or ()]
    if container.get("command") != COMMAND:
        yield f"command {container.get('command')} must be {COMMAND}"
    elif not arguments or arguments[0] not in VERBS:
        yield f"{arguments[:1]} is not a verb; verbs are {', '.join(sorted(VERBS))}"
    publishes = arguments[:1] == [task.Verb.PUBLISH.value]
    yield from _confinement(template, claim_volumes.outside_paths(template, is_read_only=False) if publishes else frozenset())
    yield from _security(container.get("securityContext") or {}, builds=arguments[:1] == [task.Verb.BUILD.value])


def _confinement(template: Object, published: Set[str]) -> Iterator[str]:
    """Yield the breaches of a container template in its paths and mounts, its time limit, and its retries.

    `published` are paths that it may also name and mount.
    """
    container = template["container"]
    arguments = [str(argument) for argument in container.get("args") or ()]
    for text in (*arguments, *(str(entry.get("value", "")) for entry in container.get("env") or ())):
        if text.startswith("/") and not text.startswith(_ALLOWED_ABSOLUTE) and text not in published:
            yield f"path {text} must start with {_ALLOWED_ABSOLUTE}: an engine may put the folders elsewhere"
    for mount in container.get("volumeMounts") or ():
        path = str(mount.get("mountPath", ""))
        if not path.startswith(_ALLOWED_ABSOLUTE) and path not in published:
            yield f"mount {mount.get('mountPath')} must lie below {_ALLOWED_ABSOLUTE}"
    if (template.get("retryStrategy") or {}).get("expression") != lost_attempts.EXPRESSION:
        yield f"retryStrategy.expression must be `{lost_attempts.EXPRESSION}`: only exit code 75 and lost attempts are retried"
    if ((template.get("retryStrategy") or {}).get("backoff") or {}).get("maxDuration"):
        yield "retryStrategy.backoff.maxDuration counts from the first attempt's start: a long task gets no second one; use cap"
    if not template.get("activeDeadlineSeconds"):
        yield "activeDeadlineSeconds is missing: a pod that hangs must end"


def _security(context: Object, *, builds: bool) -> Iterator[str]:
    """Yield the breaches of a security context: only verb `build` may be root, and only with `CAPABILITIES`."""
    added = set((context.get("capabilities") or {}).get("add") or ())
    allowed = set(CAPABILITIES) if builds else set()
    if context.keys() & set(_FORBIDDEN_FIELDS) or not added <= allowed:
        names = sorted(context.keys() & set(_FORBIDDEN_FIELDS)) + sorted(added - allowed)
        yield f"securityContext: {', '.join(names)} is more than its verb needs"
    root = context.get("runAsUser") == 0 or context.get("runAsNonRoot") is False or context.get("allowPrivilegeEscalation")
    if not builds and (root or context.get("appArmorProfile") or context.get("seccompProfile")):
        yield "securityContext: only verb build is root, or goes without AppArmor and seccomp"


def _suspend(template: Object) -> Iterator[str]:
    sources = {
        str(entry.get("name")): entry.get("valueFrom") or {} for entry in (template.get("outputs") or {}).get("parameters") or ()
    }
    for name, default in approval.PARAMETERS.items():
        source = sources.get(name, {})
        if "supplied" not in source or source.get("default") != default:
            yield f"approval output {name} must be supplied with default {default}: a time-out must approve nothing"
    if not template["suspend"].get("duration"):
        yield "suspend.duration is missing: a forgotten approval must end"


def _outputs(template: Object) -> Iterator[str]:
    for entry in (template.get("outputs") or {}).get("parameters") or ():
        name, source = str(entry.get("name")), entry.get("valueFrom") or {}
        if name not in SAFE_DEFAULTS:
            yield f"output {name} is not among {', '.join(SAFE_DEFAULTS)}: outputs are enums, shard numbers and digests only"
        elif source.get("default") != SAFE_DEFAULTS[name]:
            yield f"output {name} must have default {SAFE_DEFAULTS[name]}: a missing file must let nothing pass"
        path = str(source.get("path", _ALLOWED_ABSOLUTE))
        if not path.startswith(_ALLOWED_ABSOLUTE):
            yield f"output {name} is read from {path}, which must lie below {_ALLOWED_ABSOLUTE}"
