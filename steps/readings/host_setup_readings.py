"""Readings of what sets hosts up: journals of RKE2 and K3s, and output of Ansible.

RKE2 logs many failures at level info, and a start-up has lines that look like errors, so levels decide nothing. Source:
rancher/rke2 and k3s-io/k3s, pkg/agent, pkg/daemons, pkg/cluster.
"""

import re
from typing import Any

import msgspec

from steps.contract.plain_text import count
from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.readings.captured_text import CapturedText
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ToolReading, failed, of_error, passed, undecided
from steps.stages.shared import reader_host, reader_kubelet
from steps.stages.shared.reader_errors import Pattern, find, pattern

RKE2, ANSIBLE = "rke2", "ansible"
SUPERVISOR_PORT = 9345
_DEPENDENCY, _PERMISSION, _HEALTH = FailureClass.DEPENDENCY, FailureClass.PERMISSION, FailureClass.HEALTH
_SETTING, _PATH, _CONSEQUENCE = CauseRank.SETTING, CauseRank.PATH, CauseRank.CONSEQUENCE

# ---- RKE2 ----------------------------------------------------------------------------------------------------------------------

_RKE2 = re.compile(
    r"\b(?:rke2|k3s)(?:-(?:server|agent))?(?:\[\d+\])?: |invalid kernel flag: |^time=\"[^\"\n]+\" level=\w+ msg="
    r"|\brke2-(?:server|agent)\b"
    r"|RunPodSandbox for",
    re.MULTILINE,
)
_JOURNAL = r"(?:\b(?P<host>[\w.-]+) (?:rke2|k3s)(?:-\w+)?\[\d+\]: [^\n]*?)?"
PATTERNS: tuple[Pattern, ...] = (
    pattern(
        "missing required: ",
        r"missing required: ",
        _DEPENDENCY,
        "CIS profile prerequisites",
        _SETTING,
        next_step="create the user and group etcd and set the kernel parameters before RKE2 starts",
    ),
    pattern(
        "invalid kernel ",
        r"invalid kernel (?:flag: |parameter value )",
        _DEPENDENCY,
        "protect-kernel-defaults: sysctl",
        _SETTING,
        next_step="set the kernel parameters that the message names, in /etc/sysctl.d",
    ),
    pattern(
        "failed to get sandbox image",
        r"failed to get sandbox image \\?\"[^\"\n]*pause:",
        _DEPENDENCY,
        "pause image not imported (air gap)",
        _SETTING,
        next_step="put the images' archive of this release into agent/images, or give a registry in registries.yaml",
    ),
    pattern(
        "Error encountered while importing",
        r"Error encountered while importing (?:\S*/)?(?P<what>[\w.-]+\.tar[\w.]*)",
        _DEPENDENCY,
        "image import failed for {what}",
        _SETTING,
        next_step="make the archive with `docker save` or `ctr images export --platform`, and check its checksum",
    ),
    pattern(
        "token CA hash does not match",
        r"token CA hash does not match",
        _PERMISSION,
        "token CA hash mismatch",
        _PATH,
        next_step="use the token of this cluster's server (server/node-token), and see that `server:` names this cluster",
    ),
    pattern(
        "tls: bad certificate",
        r"TLS handshake error from (?P<peer>[\d.]+|\[[0-9a-f:]+\]):\d+: remote error: tls: bad certificate",
        _PERMISSION,
        "TLS bad certificate (token/CA mismatch on the agent)",
        _PATH,
        next_step="the agent knows another cluster's CA: remove its data folder, or correct its token",
    ),
    pattern(
        "Node password rejected",
        rf"{_JOURNAL}Node password rejected",
        _PERMISSION,
        "the server refuses this node: its name is taken, or its password is another one (Node password rejected)",
        _SETTING,
        next_step="give each machine its own name; after a new installation delete Secret NODE.node-password.rke2 in kube-system",
    ),
    pattern(
        "certificate has expired or is not yet valid",
        rf"{_JOURNAL}certificate has expired or is not yet valid(?P<what>[^\n\"\\]*)",
        _DEPENDENCY,
        "a certificate is not valid by this node's clock{what}",
        _PATH,
        next_step="compare the node's clock with the servers' (chronyc tracking); if it is right, rotate the certificates",
    ),
    pattern(
        ":2379",
        r"(?P<peer>127\.0\.0\.1:2379)[^\n]*connection refused",
        _HEALTH,
        "etcd not listening on {peer}",
        CauseRank.OPERATION,
        next_step="read the log of the pod etcd (crictl logs), then the kubelet's",
    ),
    pattern(
        "etcd",
        r"(?:local etcd status|etcd alarm list|etcd)[^\n]*context deadline exceeded",
        _HEALTH,
        "etcd not up",
        _CONSEQUENCE,
        next_step="read the kubelet's log: a static pod that is refused, or the log of the pod etcd",
    ),
    pattern(
        "level=fatal",
        r"level=fatal msg=\"(?P<what>[^\"\n]*)",
        FailureClass.RUNTIME,
        "{what}",
        CauseRank.UNKNOWN,
    ),
)
_BALANCER = re.compile(r"load balancer \S+ [\w.:\[\]]+ -> \[(?P<target>[\w.:-]+:(?P<port>\d{1,5}))[\] ,]")
_IMPORTED = re.compile(r"Imported images from (?P<file>\S+) in (?P<seconds>[\d.]+)(?P<unit>ms|s)\b")
_SYSCTL = re.compile(
    r"invalid kernel flag: (?P<flag>[\w/.]+), expected value: (?P<wanted>\d+)"
    r"|invalid kernel parameter value (?P<name>[\w.]+)=\d+ - expected (?P<value>\d+)"
)
_ACCOUNT = re.compile(r"missing required: (user|group): unknown (?:user|group) ([\w-]{1,32})")


_ERROR_LINE = re.compile(r"^[^\n]*(?:\blevel=error\b|\bE\d{4} \d\d:\d\d:\d\d\.)[^\n]*", re.MULTILINE)


def is_rke2(text: str) -> bool:
    """Return True for the journal of RKE2 or K3s, or messages of their kubelet and containerd."""
    return _RKE2.search(text) is not None


def read_rke2(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of a journal: its first cause; an import of images that ended is a pass."""
    text = captured.text
    figures = _journal_figures(text, captured.ends_with_line)
    known = (*reader_host.PATTERNS, *PATTERNS, *reader_kubelet.NODE_PATTERNS)
    if error := _supervisor(text) or next(iter(find(text, known)), None):
        if error.cause == "protect-kernel-defaults: sysctl" and "missing required: " in text:
            error = next(other for other in find(text, PATTERNS) if other.cause.startswith("CIS"))
        return of_error(RKE2, error, figures)
    begun = set(re.findall(r"Importing images from (\S+?)\"?(?:\s|$)", text))
    ended = list(_IMPORTED.finditer(text))
    if ended and begun <= {match["file"] for match in ended}:
        figures["images"] = len(re.findall(r"msg=\"Imported (?!images from)\S+", text))
        figures["seconds"] = sum(float(match["seconds"][:20]) / (1000 if match["unit"] == "ms" else 1) for match in ended)
        return passed(RKE2, figures, f"{count(figures['images'], 'image')} imported from {count(len(ended), 'archive')}")
    words = "no failure that a rule knows is in these lines, which do not prove that the server is up"
    quoted = _ERROR_LINE.search(text)
    reading = undecided(RKE2, words, figures, next_step="read the first error line" if quoted else "")
    return msgspec.structs.replace(reading, detail=quoted[0].strip()) if quoted else reading


def _supervisor(text: str) -> ToolError | None:
    """Return the error of an agent that cannot reach the supervisor of its server."""
    line = next(
        (line for line in text.splitlines() if "/cacerts" in line and ("EOF" in line or "reset" in line or "refused" in line)), ""
    )
    target = _BALANCER.search(text)
    if not line or target is None:
        return None
    is_wrong = int(target["port"]) != SUPERVISOR_PORT
    what = f"target {target['target']} is not port {SUPERVISOR_PORT}" if is_wrong else f"target {target['target']} does not answer"
    return ToolError(
        cause=f"supervisor unreachable: {what}",
        failure_class=FailureClass.INPUT if is_wrong else _DEPENDENCY,
        line=line[:300],
        peer=target["target"],
        rank=_SETTING if is_wrong else _PATH,
        next_step=f"correct the port of the load balancer or of `server:` to {SUPERVISOR_PORT}"
        if is_wrong
        else "see the server's log",
    )


def _journal_figures(text: str, ends_with_line: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    unit = re.search(r"\b(rke2-(?:server|agent))\.service|\b(rke2-agent)-load-balancer", text)
    if unit:
        figures["unit"] = unit[1] or unit[2]
    elif "Cluster-Http-Server" in text:
        figures["unit"] = "server"
    elif re.search(r"Waiting for (?:master|control-plane) node|server is not ready|etcd", text):
        figures["unit"] = "rke2-server"
    missing = [f"{kind} {name}" for kind, name in _ACCOUNT.findall(text)]
    for match in _SYSCTL.finditer(text):
        name = (match["flag"] or match["name"]).replace("/", ".")
        missing.append(f"{name}={match['wanted'] or match['value']}")
    if missing:
        figures["missing"] = list(dict.fromkeys(missing))
    if target := _BALANCER.search(text):
        figures["upstream"] = target["target"]
    last = text.rstrip("\n").rpartition("\n")[2]
    # an entry of logrus ends in a quotation mark
    if 'msg="' in last and (len(re.findall(r'(?<!\\)"', last)) % 2 or not ends_with_line):
        figures["truncated_last_line"] = True
    return figures


# ---- Ansible -------------------------------------------------------------------------------------------------------------------

_UNREACHABLE = re.compile(
    r"(?:fatal: \[(?P<host>[\w.:-]+)\]|^(?P<adhoc>[\w.:-]+) \|)(?:: )?[ ]?UNREACHABLE! => "
    r"(?P<body>\{[^\n]*\}|\{(?:\n[^\n}]*){1,12}\n\})",
    re.MULTILINE,
)
_FAILED = re.compile(
    r"(?:fatal: \[(?P<host>[\w.:-]+)\]: |^(?P<adhoc>[\w.:-]+) \| )FAILED!(?: \| rc=\d+)? (?:=>|>>) ?"
    r"(?P<body>[^\n]*(?:\n +\"msg\"[^\n]*)?)",
    re.MULTILINE,
)
_RECAP = re.compile(
    r"^(?P<host>[\w.:-]+)[ \t]*: ok=(?P<ok>\d+)[ \t]+changed=(?P<changed>\d+)[ \t]+unreachable=(?P<unreachable>\d+)"
    r"[ \t]+failed=(?P<failed>\d+)",
    re.MULTILINE,
)
_MESSAGE = re.compile(r"\"msg\": \"(?P<text>(?:[^\"\\\n]|\\.){0,2000})")


def is_ansible(text: str) -> bool:
    """Return True for output of ansible or ansible-playbook."""
    words = r"\bUNREACHABLE! =>|^PLAY RECAP \**|^(?:PLAY|TASK) \[|fatal: \[[\w.:-]+\]: FAILED!"
    words += r"|\| (?:SUCCESS|CHANGED|FAILED)\b[^\n]* (?:=>|>>)"
    return re.search(words, text, re.MULTILINE) is not None


def read_ansible(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of Ansible's output: unreachable hosts before failed tasks, then the recap."""
    text = captured.text
    unreachable = {match["host"] or match["adhoc"]: _refusal(match["body"]) for match in _UNREACHABLE.finditer(text)}
    figures: dict[str, Any] = {"unreachable_hosts": len(unreachable)}
    if unreachable:
        figures["unreachable"] = unreachable
    recap = {
        match["host"]: {key: int(match[key][:9]) for key in ("ok", "unreachable", "failed")} for match in _RECAP.finditer(text)
    }
    if recap:
        figures["recap"] = recap
    if unreachable:
        is_refused = any("denied" in reason or "host key" in reason for reason in unreachable.values())
        step = "ssh to each of these hosts with the user and key of the inventory"
        return failed(ANSIBLE, _PERMISSION if is_refused else _DEPENDENCY, _reasons(unreachable), figures, next_step=step)
    if match := _FAILED.search(text):
        message = _MESSAGE.search(match["body"])
        cause = f"{match['host'] or match['adhoc']}: {message['text'] if message else match['body']}"
        return failed(ANSIBLE, FailureClass.RUNTIME, cause, figures)
    if bad := [host for host, counts in recap.items() if counts["unreachable"] or counts["failed"]]:
        return failed(ANSIBLE, FailureClass.RUNTIME, f"tasks failed on {', '.join(bad[:5])}", figures)
    if not recap:
        return undecided(ANSIBLE, "the recap is missing: the play has not ended, or the output is cut", figures)
    if site.nodes is None or len(recap) != site.nodes:
        step = "state it: --expect nodes=N"
        return undecided(ANSIBLE, f"{count(len(recap), 'host')} in the recap, {site.nodes} stated", figures, next_step=step)
    return passed(ANSIBLE, figures, f"no task failed on {count(len(recap), 'host')}")


def _refusal(body: str) -> str:
    """Return in few words why Ansible did not reach a host."""
    message = _MESSAGE.search(body)
    text = message["text"] if message else body[:300]
    if match := re.search(r"Permission denied \(([\w,-]+)\)", text):
        methods = [method for method in match[1].split(",") if not method.startswith("gssapi")]
        return f"{','.join(methods)} denied"
    known = ("Connection timed out", "Connection refused", "No route to host", "Could not resolve hostname")
    words = next((words.lower() for words in known if words in text), "")
    if "Host key verification failed" in text:
        return "host key not known"
    return words or text[:120]


def _reasons(unreachable: dict[str, str]) -> str:
    by_reason: dict[str, list[str]] = {}
    for host, reason in unreachable.items():
        by_reason.setdefault(reason, []).append(host)
    if len(by_reason) == 1:
        return next(iter(by_reason))
    return "; ".join(f"{', '.join(hosts[:10])} {reason}" for reason, hosts in by_reason.items())
