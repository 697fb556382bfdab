"""Tables that map error texts of Helm and Argo CD to failure classes; the first rule that matches wins.

Wordings come from Argo CD 3 (https://github.com/argoproj/argo-cd, controller/state.go and gitops-engine's sync_context.go) and from
Helm 3. See `steps/docs/facts/argo.md`, Error texts and failure classes.
"""

import itertools
import re
from collections.abc import Iterable

from msgspec import Struct

from steps.contract import plain_text
from steps.contract.verdict import FailureClass

MOST_DETAILS = 3
"""Most lines that are quoted after a line which announces them."""
LONGEST, HEAD = 300, 90
"""Most characters of a line in a message, and how many of them come from its beginning."""


class CauseRule(Struct, frozen=True):
    """A rule of a table: a pattern, and the failure class and next step of texts that match it.

    A next step can name groups of the pattern in braces. `source` names where the text must come from; empty means any source.
    Sources of Argo CD's texts: a condition's type, `operation`, `hook`, `resource` (refused), `unhealthy` (applied, then degraded).
    """

    source: str
    pattern: str
    failure_class: FailureClass
    next_step: str


class Cause(Struct, frozen=True):
    """The failure class that a text stands for, with the next step. `text` is the matching line."""

    failure_class: FailureClass
    next_step: str
    text: str


_NETWORK = (
    r"no such host|connection refused|connection reset by peer|unexpected EOF|i/o timeout|context deadline exceeded"
    r"|TLS handshake timeout|x509:"
    r"|knownhosts:|no route to host|server misbehaving|network is unreachable|status code:? (429|5\d\d)"
    r"|(chart|repo\S*) .*not found|could not (download|find protocol)|failed to (download|fetch)"
)
_MISSING_KIND = (
    r"could not find [\w.-]+ ?/ ?\w+|no matches for kind|ensure CRDs are installed first|could not find the requested resource"
)
_LOOKUP = r"lookup (?P<name>[\w.-]+) on (?P<server>[\w.:\[\]-]+):53: "
_DEAD_DNS = _LOOKUP + r"(?:.*(?:i/o timeout|connection refused|no route to host)|server misbehaving)"
_DEAD_DNS_STEP = (
    "the cluster's DNS ({server}) got no answer about {name}: see which servers CoreDNS asks (resolv.conf of the nodes; where that "
    "has only loopback or link-local ones, RKE2 takes 8.8.8.8), and whether pods reach them"
)
_NO_NAME = _LOOKUP + "no such host"
_NO_NAME_STEP = (
    "the cluster's DNS ({server}) says that {name} does not exist: correct the address, or the DNS servers of the nodes, which "
    "CoreDNS asks"
)
_OTHER_SERVER = r"x509: certificate is valid for (?P<names>[^\n]{1,200}?), not (?P<name>[\w.-]+)"
_OTHER_SERVER_STEP = (
    "{name} leads to another server, which serves {names}: a search domain of the nodes with a wildcard record, which pods ask "
    "first, or a proxy; compare `getent hosts {name}` on a node and in a pod, and take that domain out of resolv.conf"
)
_CLOCK = r"x509: certificate has expired or is not yet valid"
_CLOCK_STEP = (
    "compare the nodes' clocks with the time in the message; if they are right, the server's certificate has to be renewed"
)
_WEBHOOK = r"no endpoints available|failed calling webhook"
SILENT_WEBHOOK = (
    r"failed calling webhook \"(?P<hook>[\w.-]+)\".*"
    r"(?:context deadline exceeded|i/o timeout|Client\.Timeout|no route to host|connection refused|connection reset)"
)
"""Pattern of the API server's message about a webhook that it did not reach; a group names the webhook."""
_SILENT_WEBHOOK_STEP = (
    "see whether the Service of webhook {hook} has ready endpoints: if not, make its workload ready first; if it has, the servers' "
    "host network does not reach pods on other nodes, which gate rke2/host_network tests"
)
_FORBIDDEN = (
    r"is forbidden: User |cannot (create|get|list|patch|update|delete) resource|Unauthorized|authentication required"
    r"|permission denied|no matching service account|unable to authenticate|authorization failed|Access denied"
    r"|status code:? 40[13]|: denied|unexpected status[^\n]*: 40[13]\b|: 40[13] (Unauthorized|Forbidden)"
)
_TEMPLATE = (
    r"execution error at|template: |error calling |YAML parse error|error converting YAML|don't meet the specifications"
    r"|failed to unmarshal manifests"
)
_GENERATION = r"Failed to load target state|failed to generate manifest|failed to unmarshal manifests"
_SYNC = r"objects failed to apply|synchronization tasks completed unsuccessfully|synchronization tasks are not valid"
_PERMISSION, _DEPENDENCY = FailureClass.PERMISSION, FailureClass.DEPENDENCY
_GENERATE, _COMPARE = FailureClass.MANIFEST_GENERATION, FailureClass.COMPARISON
_APPLY, _HEALTH, _RUNTIME = FailureClass.APPLY, FailureClass.HEALTH, FailureClass.RUNTIME

_NOT_READY = r"resource not ready, name: (?P<object>[\w.-]+), kind: (?P<kind>\w+)"
_NOT_READY_IN_TIME = r"(INSTALLATION|UPGRADE) FAILED: ([\w-]+ hooks failed: )?context deadline exceeded"
_HOOK = r"(?P<phase>(?:pre|post)-(?:install|upgrade|delete|rollback))(?: hooks? failed|: )"

HELM = (
    CauseRule("", _FORBIDDEN, _PERMISSION, "give the install Job's service account this right, or the repository its credentials"),
    # before manifest generation: `spec.template: Invalid value` is no template of the chart
    CauseRule(
        "",
        r" is invalid: .*(Invalid|Required|Unsupported|Duplicate) value| is invalid: .*Forbidden: ",
        _APPLY,
        "correct the field that the message names; one that may not change takes removing the object first",
    ),
    CauseRule("", _MISSING_KIND, _DEPENDENCY, "install the chart that brings this kind first"),
    CauseRule("", SILENT_WEBHOOK, _DEPENDENCY, _SILENT_WEBHOOK_STEP),
    CauseRule("", _WEBHOOK, _DEPENDENCY, "make the webhook's own workload ready first"),
    CauseRule("", _DEAD_DNS, _DEPENDENCY, _DEAD_DNS_STEP),
    CauseRule("", _NO_NAME, _DEPENDENCY, _NO_NAME_STEP),
    CauseRule("", _OTHER_SERVER, _DEPENDENCY, _OTHER_SERVER_STEP),
    CauseRule("", _CLOCK, _DEPENDENCY, _CLOCK_STEP),
    # Helm waits with the same deadline that a download has, but names no address then
    CauseRule("", _NOT_READY, _HEALTH, "Helm waited for {kind} {object} in vain: look at its pods, their events and logs"),
    CauseRule(
        "", _NOT_READY_IN_TIME, _HEALTH, "Helm waited in vain: see which of the release's pods, or of its hooks' pods, is not ready"
    ),
    CauseRule(
        "", _HOOK + r"[^\n]*(BackoffLimitExceeded|DeadlineExceeded)", _RUNTIME, "read the log of the release's {phase} hook Job"
    ),
    CauseRule("", _NETWORK, _DEPENDENCY, "check the chart repository's address, its certificate and the way to it"),
    CauseRule("", _TEMPLATE, _GENERATE, "correct the values that the message names"),
    CauseRule(
        "",
        r"cannot re-use a name that is still in use|another operation .* in progress",
        _APPLY,
        "a broken earlier release holds the name: look at its release Secrets, roll back or remove it",
    ),
    CauseRule(
        "",
        r"cannot be imported into the current release|immutable|conflict with|denied the request",
        _APPLY,
        "settle who owns the object that the message names, or what refuses it",
    ),
    CauseRule(
        "", r"timed out waiting for the condition", _HEALTH, "look at the release's pods: a hook or a workload did not get ready"
    ),
    CauseRule("", r"(UPGRADE|INSTALLATION) FAILED|Job failed|Unsupported version", _APPLY, "read the install Job's log"),
)
"""Rules for log lines and conditions of helm-controller's install Job."""

ARGO_CD = (
    CauseRule(
        "InvalidSpecError", r"not permitted in project|allowed destinations in project", _PERMISSION, "allow it in the AppProject"
    ),
    CauseRule("", r"is not permitted in project", _PERMISSION, "allow the kind or the namespace in the AppProject"),
    CauseRule("", _FORBIDDEN, _PERMISSION, "give Argo CD's service account this right, or the repository its credentials"),
    # Argo CD 2.14 tells the cause to its log only; wrong credentials are the usual one: the revision was pushed before
    CauseRule(
        "ComparisonError",
        r"failed to get git client for repo",
        _PERMISSION,
        "check the credentials of this repository's Secret, its server's certificate, that the revision exists, and the log of "
        "argocd-repo-server",
    ),
    CauseRule("ComparisonError", r"Failed to load live state", _COMPARE, "see which kind Argo CD cannot list, and what serves it"),
    CauseRule("ComparisonError", r"chart .*not found", _DEPENDENCY, "see that the chart repository has this version of the chart"),
    CauseRule("", _DEAD_DNS, _DEPENDENCY, _DEAD_DNS_STEP),
    CauseRule("", _NO_NAME, _DEPENDENCY, _NO_NAME_STEP),
    CauseRule("", _OTHER_SERVER, _DEPENDENCY, _OTHER_SERVER_STEP),
    CauseRule("", _CLOCK, _DEPENDENCY, _CLOCK_STEP),
    CauseRule(
        "ComparisonError",
        r"x509:|knownhosts:",
        _DEPENDENCY,
        "give the server's CA in delivery.argo_cd.ca (host keys in known_hosts), or correct the repository's address",
    ),
    # before manifest generation: an unreachable repository also reports "failed to generate manifest"
    CauseRule("ComparisonError", _NETWORK, _DEPENDENCY, "check the repository's address and the way to it"),
    CauseRule("", _MISSING_KIND, _DEPENDENCY, "sync the application that brings this CRD in an earlier wave"),
    CauseRule("", SILENT_WEBHOOK, _DEPENDENCY, _SILENT_WEBHOOK_STEP),
    CauseRule("", _WEBHOOK, _DEPENDENCY, "make the webhook's own workload ready first"),
    CauseRule("InvalidSpecError", r"Unable to get cluster", _DEPENDENCY, "register the destination cluster with Argo CD"),
    CauseRule("ComparisonError", _GENERATION, _GENERATE, "correct the values, the path or the chart that the message names"),
    CauseRule("InvalidSpecError", r"", _GENERATE, "correct the Application's sources"),
    CauseRule("ComparisonError", r"", _COMPARE, "see what Argo CD cannot compare: live state, diff, JQ time-out"),
    CauseRule("UnknownError", r"", _COMPARE, "see what Argo CD cannot compare"),
    CauseRule("SharedResourceWarning", r"", _COMPARE, "two Applications manage this object: leave it to one of them"),
    CauseRule("RepeatedResourceWarning", r"", _COMPARE, "the same object is rendered twice: remove one"),
    CauseRule("hook", r"", _RUNTIME, "read the log of the hook's Job"),
    CauseRule("unhealthy", r"", _HEALTH, "see why this object is not healthy: the sync waits for it"),
    CauseRule("resource", r"", _APPLY, "correct the object that the API server refuses"),
    CauseRule("operation", _SYNC, _APPLY, "see the failed resources of the sync"),
    CauseRule("SyncError", r"", _APPLY, "see the last sync's message"),
    CauseRule("DeletionError", r"", _APPLY, "see what keeps the object that the message names from being removed"),
    CauseRule("ExcludedResourceWarning", r"", _COMPARE, "correct resource.exclusions of argocd-cm: Argo CD passes this kind over"),
    CauseRule("operation", r"", _APPLY, "see the last sync's message"),
)
"""Rules for conditions, operation and resources of an Argo CD Application."""

HARMLESS = frozenset({"OrphanedResourceWarning"})
"""Types of conditions that say nothing about the Application's own objects."""

RUNTIME_REASONS = frozenset(
    {"CrashLoopBackOff", "ImagePullBackOff", "ErrImagePull", "InvalidImageName", "OOMKilled", "Error", "CreateContainerError",
     "CreateContainerConfigError", "RunContainerError", "Unschedulable", "Evicted", "Failed", "UnexpectedAdmissionError"}
)  # fmt: skip
"""Reasons of pods and containers that mean class `runtime`; any other workload that is not ready is class `health`."""


def classify(table: Iterable[CauseRule], texts: Iterable[tuple[str, str]]) -> Cause | None:
    """Return the cause by the first rule that matches one of the texts, given as pairs (source, text); None if no rule matches."""
    # the table decides, not the order of the texts: a cause can stand in any of them
    known = tuple(texts)
    for rule in table:
        for source, text in known:
            reading = _match(rule.pattern, text) if rule.source in ("", source) else None
            if reading is not None:
                line, groups = reading
                return Cause(rule.failure_class, rule.next_step.format(**groups), line)
    return None


def _match(pattern: str, text: str) -> tuple[str, dict[str, str]] | None:
    """Return the first line of a text that matches the pattern with its details, shortened, and the pattern's groups.

    Helm writes the reason of a failed hook on the next line. Returns None if no line matches.
    """
    lines = text.splitlines() or [""]
    for number, line in enumerate(lines):
        whole = " ".join((line, *_details(lines, number)))
        if match := re.search(pattern, whole):
            groups = {key: plain_text.line(value or "") for key, value in match.groupdict().items()}
            return short(whole.strip()), groups
    return None


def _details(lines: list[str], number: int) -> list[str]:
    """Return the lines that a line of Helm announces by a colon at its end: the chart and the values that break its schema."""
    if not lines[number].rstrip().endswith(":"):
        return []
    following = (line.strip() for line in lines[number + 1 : number + 1 + MOST_DETAILS])
    return list(itertools.takewhile(lambda line: line.startswith(("- ", "* ")) or line.endswith(":"), following))


def short(line: str) -> str:
    """Return a line without control characters, with its middle cut out if it is long: the reason of a failure stands at the end.

    It is cut between words, because half a secret would not be recognised and redacted afterwards.
    """
    line = plain_text.line(line)
    if len(line) <= LONGEST:
        return line
    head, tail = line[: HEAD + 1].rpartition(" ")[0], line[HEAD - LONGEST - 1 :].partition(" ")[2]
    return f"{head} … {tail}".strip()
