"""Readings of Slurm: sinfo, scontrol, sacct, slurmd -C, slurm.conf, slurmrestd, and the errors of its daemons and commands."""

import re
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec

from steps.contract.host_ranges import fold
from steps.contract.plain_text import count
from steps.contract.verdict import CauseRank, FailureClass, Status
from steps.readings.captured_text import CapturedText
from steps.readings.gpu_readings import STATE_GPUS
from steps.readings.site_values import SiteValues
from steps.readings.tool_reading import ReadingVerdict, ToolReading, failed, of_error, of_finding, passed, undecided
from steps.stages.shared import gate_slurm_states
from steps.stages.slurm import gate_states, reader, reader_slurm_errors
from steps.stages.slurm.contract import SlurmNode
from steps.stages.slurm.reader import SinfoTable

SINFO, SCONTROL, REST, SLURMD, SACCT, SRUN, SLURM = "sinfo", "scontrol", "slurmrestd", "slurmd", "sacct", "srun", "slurm"
_HEALTH, _RUNTIME = FailureClass.HEALTH, FailureClass.RUNTIME
STATE_NODES = "state how many must be usable: --expect nodes=N"
MOST_NAMES = 1000
_FIRST = 6
"""Nodes whose reasons and Gres stand in a plain list; all of them stand in a map by node."""
_MARKS = {word: mark for mark, word in reversed(reader.MARKS.items())}
"""Slurm's word for a state, and the mark of sinfo for it; of two marks for one word the first counts."""


# ---- states of nodes -----------------------------------------------------------------------------------------------------------


def is_sinfo(text: str) -> bool:
    """Return True for a table of sinfo, or its lines `%n,%T` or `%T|%G|%N`."""
    return _SINFO_LINE.search(text) is not None and reader.lists_nodes(text[:200_000])


_SINFO_LINE = re.compile(
    r"^PARTITION\s+AVAIL|^\S+[ \t]+(?:up|down|drain|inact)[ \t]+\S+[ \t]+\d+[ \t]+[a-z]|^[a-z_]+[*~#%!$@^-]*\|[^|\n]*\|\S+[ \t]*$"
    r"|^[\w.-]+,(?:idle|down|drain|alloc|mix|unk|fail|maint|comp|resv|reserved|allocated|planned|plnd)\w*[*~#%!$@^-]*[ \t]*$",
    re.MULTILINE,
)


def read_sinfo(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of sinfo, with the reasons of `sinfo -R` if they are in the text."""
    table = reader.sinfo_table(captured.text)
    if table.is_cut:
        return undecided(SINFO, f"the text lists more than {reader.MOST} hosts", {}, next_step="capture the output of one sinfo")
    nodes = reader.with_reasons(table.nodes, reader.reasons(captured.text))
    figures: dict[str, Any] = {"nodes": len(nodes), "counts": dict(Counter(_word(node) for node in nodes))}
    for node in nodes:
        key = _key(node)
        if _is_usable(node) or node.states[1:] == ("powered_down",):
            figures[key] = figures.get(key, 0) + 1
        elif len(figures.setdefault(key, [])) < MOST_NAMES:
            figures[key].append(node.name)
    reasons = list(dict.fromkeys(node.reason for node in nodes if node.reason))
    figures |= {"reason": reasons[0] if len(reasons) == 1 else reasons} if reasons else {}
    return _of_table(table, _of_nodes(SINFO, nodes, figures, site))


def _of_table(table: SinfoTable, reading: ToolReading) -> ToolReading:
    """Return the reading of a table of sinfo by that of its nodes, and by its partitions and rows."""
    if reading.verdict is ReadingVerdict.FAIL:
        return reading
    figures = reading.figures
    if table.unavailable:
        name, state = next(iter(table.unavailable.items()))
        step = f"scontrol update PartitionName={name} State=UP, once it may take jobs"
        return failed(SINFO, _HEALTH, f"partition {name} is {state}", figures, expected="partition up", next_step=step)
    rows = [("cannot be read", row) for row in table.unread]
    rows += [("names another number of nodes than it states", row) for row in table.unequal]
    if rows and reading.is_pass:
        words, row = rows[0]
        return undecided(SINFO, f"a row {words}: {row}", figures, next_step="capture the whole output")
    return reading


def _is_usable(node: SlurmNode) -> bool:
    return gate_slurm_states.state(node.states) is None


def _word(node: SlurmNode) -> str:
    """Return a state as sinfo prints it, in its long form."""
    return node.states[0] + "".join(_MARKS.get(state, "") for state in node.states[1:])


def _key(node: SlurmNode) -> str:
    short = {"allocated": "alloc", "mixed": "mix", "completing": "comp"}
    base = short.get(node.states[0], node.states[0])
    return "_".join([base, *(state for state in node.states[1:] if state == "powered_down")])


def is_rest(document: Any) -> bool:
    """Return True for a JSON document of slurmrestd with nodes."""
    nodes = document.get("nodes") if isinstance(document, dict) else None
    return isinstance(nodes, list) and all(isinstance(node, dict) and "state" in node for node in nodes) and bool(nodes)


def read_rest(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of slurmrestd's answer about nodes."""
    nodes, errors = reader.read_rest_nodes(captured.text)
    states = [[state.upper() for state in node.states] for node in nodes]
    figures: dict[str, Any] = {
        "nodes": len(nodes),
        "states": states if len(nodes) == 1 else [[node.name, state] for node, state in zip(nodes, states, strict=True)],
        "reason": [node.reason for node in nodes][:_FIRST],
        "gres": [node.gres for node in nodes][:_FIRST],
        "errors": list(errors),
    }
    if len(nodes) > _FIRST:
        figures |= {"node_reasons": {node.name: node.reason for node in nodes if node.reason}}
        figures |= {"node_gres": {node.name: node.gres for node in nodes if node.gres}}
    if errors and not nodes:
        return failed(REST, _RUNTIME, errors[0], figures)
    return _of_nodes(REST, nodes, figures, site, upper=True)


def is_records(text: str) -> bool:
    """Return True for records `NodeName=…` of scontrol, slurmd -C or slurm.conf."""
    return re.search(r"^(?:[<>+-] ?)?[ \t]*NodeName=\S", text, re.MULTILINE) is not None


def read_records(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of `scontrol show node`, of `slurmd -C`, or of lines of slurm.conf, which hold no state."""
    nodes = reader.records(captured.text)
    if not any(_has_state(node) for node in nodes):
        return _of_definitions(captured, nodes, site)
    first, known = nodes[0], reader.fields(captured.text)
    figures: dict[str, Any] = {
        "nodes": len(nodes),
        "state": "+".join(first.states).upper(),
        "reason": first.reason,
        "gres": first.gres or None,
        "cpus": _whole(known.get("CPUTot")),
        "real_memory": _whole(known.get("RealMemory")),
    }
    if match := _LOWER.search(first.reason):
        figures |= {"gres_found": int(match["found"]), "gres_configured": int(match["configured"])}
    # scontrol prints the partitions after the state, so a record without them is cut
    if _all_usable(nodes, site) and not _ENDS.search(captured.text[captured.text.rfind("NodeName=") :]):
        return undecided(SCONTROL, "the last record is cut", figures)
    return _of_nodes(SCONTROL, nodes, figures, site, upper=True)


_ENDS = re.compile(r"\b(?:AllocTRES|CfgTRES|SlurmdStartTime)=")
_LOWER = re.compile(r"(?P<what>gres/\S+) count reported lower than configured \((?P<found>\d{1,6}) < (?P<configured>\d{1,6})\)")


def _has_state(node: SlurmNode) -> bool:
    # slurm.conf gives State=UNKNOWN or CLOUD as the state to begin with
    return bool(node.states) and node.states not in (("unknown",), ("cloud",), ("future",))


def _all_usable(nodes: tuple[SlurmNode, ...], site: SiteValues) -> bool:
    return all(_problem(node, site) is None for node in nodes)


def _problem(node: SlurmNode, site: SiteValues) -> Any:
    return gate_states.problem(node, site.expected_gpus or 0, powered_down=bool(site.powered_down_ok))


def _of_nodes(
    tool: str, nodes: tuple[SlurmNode, ...], figures: dict[str, Any], site: SiteValues, *, upper: bool = False
) -> ToolReading:
    findings = [(node, finding) for node in nodes if (finding := _problem(node, site)) is not None]
    bad = [(node, finding) for node, finding in findings if finding.status is Status.FAIL]
    if bad:
        return of_finding(tool, bad[0][1], figures, _nodes_cause([node for node, _ in bad], len(nodes), site, upper=upper))
    if findings:
        return of_finding(tool, findings[0][1], figures)
    if not nodes or (site.nodes is not None and len(nodes) != site.nodes):
        words = f"{count(len(nodes), 'node')} instead of {site.nodes}, or the output is cut"
        return undecided(tool, words, figures, next_step="capture the whole output")
    if site.nodes is None and (tool == SINFO or site.expected_gpus is None):
        return undecided(tool, f"{count(len(nodes), 'node')} usable, and no number is stated", figures, next_step=STATE_NODES)
    return passed(tool, figures, f"{count(len(nodes), 'node')} usable")


def _nodes_cause(bad: list[SlurmNode], total: int, site: SiteValues, *, upper: bool) -> str:
    """Return the cause of nodes that Slurm cannot use: by name if they are few, else the states by their numbers."""
    by_gres = [node for node in bad if gate_slurm_states.state(node.states, powered_down=bool(site.powered_down_ok)) is None]
    if len(by_gres) == len(bad):
        return ""
    words = {id(node): "+".join(node.states).upper() if upper else _word(node).rstrip("*") for node in bad}
    reasons = {node.reason for node in bad}
    match = _LOWER.search(bad[0].reason)
    if match and "drain" in bad[0].states and len(bad) == 1:
        return f"drained: {match['what']} count lower than configured ({match['found']} < {match['configured']})"
    if len(bad) == 1 and upper:
        reason = f": {bad[0].reason}" if bad[0].reason else ""
        return f"{'node ' if total == 1 else ''}{bad[0].name} {words[id(bad[0])]}{reason}"
    by_state: dict[str, list[str]] = {}
    for node in bad:
        by_state.setdefault(words[id(node)], []).append(node.name)
    if len(bad) > 8 and len(by_state) > 1:
        states = [f"in state {state}" if state == "fail" else state for state in by_state]
        return f"nodes {', '.join(states[:-1])} or {states[-1]}: {len(bad)} of {total}"
    if len(by_state) == 1 and len(reasons) == 1 and bad[0].reason:
        state = next(iter(by_state)).replace("drain", "drained").replace("draineded", "drained").replace("drainedd", "drained")
        return f"{fold([node.name for node in bad])} {state}: {bad[0].reason}"
    return ", ".join(f"{', '.join(names) if len(names) < 5 else fold(names)} {state}" for state, names in by_state.items())


def _of_definitions(captured: CapturedText, nodes: tuple[SlurmNode, ...], site: SiteValues) -> ToolReading:
    """Return the reading of `slurmd -C` or of slurm.conf: what hardware is there, or is promised."""
    known = reader.fields(captured.text)
    lines = re.findall(r"^([<>])[ \t]+NodeName=", captured.text, re.MULTILINE)
    if lines:
        before = [node.gres for node, mark in zip(nodes, lines, strict=False) if mark == "<"]
        after = [node.gres for node, mark in zip(nodes, lines, strict=False) if mark == ">"]
        figures: dict[str, Any] = {"before": ", ".join(before), "after": ", ".join(after)}
        return undecided(SLURM, "a difference of two configurations, without a question of health", figures)
    if "State=" in captured.text or len(nodes) > 1:
        figures = {"nodes": len({node.name for node in nodes}), "gres": [node.gres for node in nodes]}
        return undecided(SLURM, "lines of slurm.conf, without a question of health", figures)
    node = nodes[0]
    figures = {
        "node": node.name,
        "cpus": _whole(known.get("CPUs")),
        "gres": node.gres or None,
        "real_memory": _whole(known.get("RealMemory")),
    }
    if site.expected_gpus is None:
        return undecided(SLURMD, f"hardware of {node.name}, and no number of GPUs is stated", figures, next_step=STATE_GPUS)
    if node.gpus == site.expected_gpus:
        return passed(SLURMD, figures, f"slurmd counts {count(node.gpus, 'GPU')}")
    cause = f"slurmd counts {count(node.gpus, 'GPU')} instead of {site.expected_gpus}"
    step = "see gres.conf and AutoDetect, and nvidia-smi -L where slurmd runs"
    return failed(SLURMD, FailureClass.HARDWARE, cause, figures, next_step=step)


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 16 else None


_PARTITION_GRES = re.compile(r"^(?P<partition>[\w.*-]+)[ \t]+(?P<gres>gpu:[\w.:,()-]+|\(null\))[ \t]*$", re.MULTILINE)


def is_partition_gres(text: str) -> bool:
    """Return True for lines of `sinfo -o '%P %G'` with GPUs."""
    return any(line["gres"] != _NO_GRES for line in _PARTITION_GRES.finditer(text))


_NO_GRES = "(null)"


def read_partition_gres(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of `sinfo -o '%P %G'`: GPUs of the nodes of a partition."""
    lines = [(line["partition"].rstrip("*"), line["gres"]) for line in _PARTITION_GRES.finditer(captured.text)]
    gpus = [line for line in lines if line[1] != _NO_GRES]
    figures: dict[str, Any] = {"partition": gpus[0][0], "gres": gpus[0][1]}
    if len(lines) > 1:
        by_partition: dict[str, list[str]] = {}
        for partition, gres in lines[:MOST_NAMES]:
            by_partition.setdefault(partition, []).append(gres)
        figures["partitions"] = {partition: ", ".join(dict.fromkeys(words)) for partition, words in by_partition.items()}
    if site.expected_gpus is None:
        return undecided(SINFO, "no number of GPUs is stated", figures, next_step=STATE_GPUS)
    with_gpus = {partition for partition, _ in gpus}
    wrong = [line for line in lines if line[0] in with_gpus and reader.gpus(line[1]) != site.expected_gpus]
    if wrong:
        cause = f"partition {wrong[0][0]} has {wrong[0][1]} instead of {site.expected_gpus} GPUs"
        return failed(SINFO, FailureClass.HARDWARE, cause, figures)
    if others := [partition for partition, _ in lines if partition not in with_gpus]:
        return undecided(SINFO, f"partition {others[0]} has no GPUs", figures)
    return passed(SINFO, figures, f"{count(site.expected_gpus, 'GPU')} on the nodes of each partition")


_METRIC = re.compile(
    r'^slurm_node_state\{(?=[^}\n]*node="(?P<node>[\w.-]+)")(?=[^}\n]*partition="(?P<partition>[\w.-]+)")'
    r'(?=[^}\n]*state="(?P<state>\w+)")[^}\n]*\} (?P<value>\d+)',
    re.MULTILINE,
)


def is_metric(text: str) -> bool:
    """Return True for metrics of SUNK's syncer about nodes."""
    return _METRIC.search(text) is not None


def read_metric(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of metrics: states of nodes, from which the missing ones cannot be told."""
    lines = [line for line in _METRIC.finditer(captured.text) if line["value"] != "0"] or list(_METRIC.finditer(captured.text))
    first = lines[0]
    figures: dict[str, Any] = {name: first[name] for name in ("node", "partition", "state")} | {"value": _whole(first["value"])}
    return undecided(SLURM, f"{count(len(lines), 'line')} of metrics, without a question of health", figures)


_LONG_HEADER = re.compile(r"^NODELIST\s+NODES\s+PARTITION\s+STATE\b", re.MULTILINE)
_LONG_ROW = re.compile(
    r"^(?P<node>[\w.-]+)[ \t]+1[ \t]+(?P<partition>[\w.*-]+)[ \t]+(?P<state>[a-z_]+[*~#%!$@^-]*)(?=\s)", re.MULTILINE
)
_REASONS_HEADER = re.compile(r"^REASON\s+USER\s+TIMESTAMP\s+NODELIST\s*$", re.MULTILINE)
_REASONS_ROW = re.compile(
    r"^(?P<reason>\S[^\n]*?)[ \t]{1,}(?P<user>\S+)[ \t]+(?P<time>\d{4}-\d\d-\d\dT[\d:]+)[ \t]+(?P<nodes>\S+)[ \t]*$", re.MULTILINE
)


def is_long_sinfo(text: str) -> bool:
    """Return True for `sinfo -N -l` or `sinfo -R`."""
    return _LONG_HEADER.search(text) is not None or _REASONS_HEADER.search(text) is not None


def read_long_sinfo(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of `sinfo -N -l`, a line for each node and partition, or of the nodes and reasons of `sinfo -R`."""
    if header := _REASONS_HEADER.search(captured.text):
        rows = list(_REASONS_ROW.finditer(captured.text, header.end()))
        names = [name for hosts in reader.expand_hostlists(row["nodes"] for row in rows) for name in hosts]
        figures: dict[str, Any] = {"nodes": len(names), "reason": [row["reason"].strip() for row in rows][:MOST_NAMES]}
        if not rows:
            return undecided(SINFO, "no node has a reason, which does not tell that any node is usable", figures)
        cause = f"{fold(reader.expand_hostlist(rows[0]['nodes']))} not usable: {rows[0]['reason'].strip()}"
        return failed(
            SINFO, _HEALTH, cause, figures, next_step="remove the cause, then `scontrol update nodename=NODE state=resume`"
        )
    rows = list(_LONG_ROW.finditer(captured.text))
    listed = (SlurmNode(name=row["node"], states=reader.states(row["state"])) for row in rows)
    nodes = reader.worst(listed)
    counts = Counter(_word(node) for node in nodes)
    return _of_nodes(SINFO, nodes, {"nodes": len(nodes), "counts": dict(counts)}, site)


_JOB_STATE = re.compile(r"\bJobId=(?P<job>\d{1,12})\b[\s\S]{0,2000}?\bJobState=(?P<state>[A-Z_]+)(?: Reason=(?P<reason>\S+))?")


def is_job_record(text: str) -> bool:
    """Return True for `scontrol show job`."""
    return _JOB_STATE.search(text) is not None


def read_job_record(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of `scontrol show job`."""
    jobs = [(match["job"], match["state"], match["reason"] or "") for match in _JOB_STATE.finditer(captured.text)]
    codes = re.findall(r"\bExitCode=(\d{1,3}:\d{1,3})", captured.text)
    figures: dict[str, Any] = {"jobs": len(jobs), "job_states": dict(Counter(state for _, state, _ in jobs)), "exit_codes": codes}
    if bad := [job for job in jobs if job[1] in _ENDS_BADLY]:
        number, state, reason = bad[0]
        failure_class = FailureClass.HARDWARE if state in ("NODE_FAIL", "BOOT_FAIL") else _RUNTIME
        return failed(
            SCONTROL, failure_class, f"job {number} {state}{f': {reason}' if reason not in ('', 'None') else ''}", figures
        )
    if any(state != "COMPLETED" for _, state, _ in jobs) or len(codes) < len(jobs):
        number, state, reason = next((job for job in jobs if job[1] != "COMPLETED"), jobs[-1])
        return undecided(SCONTROL, f"job {number} {state}{f': {reason}' if reason not in ('', 'None') else ''}", figures)
    return passed(SCONTROL, figures, f"{count(len(jobs), 'job')} COMPLETED")


# ---- jobs ----------------------------------------------------------------------------------------------------------------------

_SACCT = re.compile(r"^(?P<header>[ \t]*JobID(?:Raw)?[ \t|][^\n]*\bState\b[^\n]*)$", re.MULTILINE)
_GOING_ON = frozenset({"RUNNING", "PENDING", "COMPLETING", "SUSPENDED", "REQUEUED", "RESIZING", "CONFIGURING", "STAGE_OUT"})
_ENDS_BADLY = frozenset(
    {"FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY", "CANCELLED", "CANCELLED+", "BOOT_FAIL", "DEADLINE", "PREEMPTED", "REVOKED",
     "OUT_OF_ME+", "SPECIAL_EXIT"}
)  # fmt: skip


def is_sacct(text: str) -> bool:
    """Return True for a table of sacct."""
    return _SACCT.search(text) is not None


def read_sacct(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of sacct: every job and step of the table completed."""
    header = _SACCT.search(captured.text)
    assert header is not None
    rows = _accounted(header["header"], captured.text[header.end() :])
    states = Counter(state for _, state in rows)
    figures: dict[str, Any] = {"jobs": len(rows), "job_states": dict(states)}
    bad = [(job, state) for job, state in rows if _ended(state) in _ENDS_BADLY]
    if bad:
        job, state = bad[0]
        failure_class = FailureClass.HARDWARE if state in ("NODE_FAIL", "BOOT_FAIL") else _RUNTIME
        return failed(
            SACCT, failure_class, f"job {job} {state}", figures, next_step=f"read the log of job {job}; scontrol show job"
        )
    if not rows or any(state != "COMPLETED" for state in states):
        return undecided(SACCT, f"states {', '.join(sorted(states)) or 'of no job'}", figures)
    return passed(SACCT, figures, f"{count(len(rows), 'job or step')} COMPLETED".replace("job or steps", "jobs and steps"))


def _ended(state: str) -> str:
    """Return a state in full: sacct cuts it to the width of its column and marks that by a plus sign."""
    if not state.endswith("+") or len(state) < 6:
        return state
    return next((word for word in sorted(_ENDS_BADLY) if word.startswith(state[:-1])), state)


_UNREAD = "that cannot be read"
_STATE_WORD = re.compile(r"[A-Z][A-Z_]{3,}\+?")


def _accounted(header: str, body: str) -> list[tuple[str, str]]:
    """Return job and state of each row: columns between bars, or of the widths that the header or a line of dashes marks."""
    rows: list[tuple[str, str]] = []
    lines = body.splitlines()
    if "|" in header:
        names = [name.strip() for name in header.split("|")]
        index = names.index("State")
        for line in lines:
            cells = line.split("|")
            if re.match(r"\s*\d", cells[0]):
                words = cells[index].split() if len(cells) > index else []
                rows.append((cells[0].strip(), words[0] if words else _UNREAD))
        return rows
    column = _state_column(header, next((line for line in lines if line.lstrip().startswith("--")), ""))
    jobs = ((re.match(r"\s*(\d[\w.+\[\]-]*)(?=\s|$)", line), line) for line in lines)
    return [(job[1], _state_of(line, column)) for job, line in jobs if job]


def _state_column(header: str, dashes: str) -> tuple[int, int]:
    """Return begin and end of the column of states. Columns are aligned to the right where no line of dashes tells their width."""
    words = list(re.finditer(r"\S+", header))
    index = [word[0] for word in words].index("State")
    marks = list(re.finditer(r"-+", dashes))
    if len(marks) == len(words):
        return marks[index].span()
    return words[index - 1].end(), words[index].end()


def _state_of(line: str, column: tuple[int, int]) -> str:
    """Return the state in a row by its place; where words are shifted, the only one that is a state."""
    begin, end = column
    is_apart = not line[end : end + 1].strip() and (not line[begin : begin + 1].strip() or not line[begin - 1 : begin].strip())
    words = line[begin:end].split()
    if not words or (is_apart and _STATE_WORD.fullmatch(words[0])):
        return words[0] if words else _UNREAD
    known = _GOING_ON | _ENDS_BADLY | {"COMPLETED"}
    words = [word for word in line.split()[1:] if _ended(word) in known]
    return words[0] if len(words) == 1 else _UNREAD


_HOST_LINE = re.compile(r"^(?:\d+: )?(?=[\w.-]*[\d.-])[A-Za-z][\w-]{0,62}(?:\.[\w-]{1,63})*$")
_SHARE = 0.5


_FILE = re.compile(
    r"\.(?:txt|md|rst|log|out|err|pdf|csv|json|ya?ml|toml|xml|html|py|sh|c|h|o|so|a|gz|xz|zst|zip|tar|tgz|sif|rpm|deb)$"
)
"""Ends of names of files, which a listing of a folder has."""
_REFUSED = re.compile(r"\b(?:error|denied|refused|timed out|failed|unreachable|cannot|fatal|no route)\b|_failed\b", re.IGNORECASE)


def is_hostnames(text: str) -> bool:
    """Return True for a list of host names, as `srun hostname` prints it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    hosts = [line for line in lines if _HOST_LINE.match(line)]
    return len(hosts) > 1 and len(hosts) >= _SHARE * len(lines)


def read_hostnames(captured: CapturedText, site: SiteValues) -> ToolReading:
    """Return the reading of `srun hostname`: as many distinct hosts as nodes were asked for."""
    lines = [line.strip() for line in captured.text.splitlines()]
    hosts = [line.split(": ")[-1] for line in lines if _HOST_LINE.match(line)]
    distinct = len(set(hosts))
    figures: dict[str, Any] = {"hosts": len(hosts), "distinct": distinct}
    if site.nodes is None:
        return undecided(SRUN, f"{distinct} distinct hosts, and no number is stated", figures, next_step=STATE_NODES)
    if error := next((line for line in lines if _REFUSED.search(line)), ""):
        return undecided(SRUN, f"not only hosts answered: {error[:200]}", figures)
    series = Counter(re.sub(r"\d+", "#", host.partition(".")[0]) for host in hosts)
    # a list of any words has the form of host names: what speaks for hosts are numbered series
    if any(_FILE.search(host) for host in hosts) or min(series.values()) < 2:
        step = "compare them with the list of `scontrol show hostnames`"
        return undecided(SRUN, f"{distinct} names that may be no hosts: they are no series", figures, next_step=step)
    if distinct < site.nodes <= len(hosts):
        return failed(SRUN, _RUNTIME, f"{len(hosts)} tasks on {distinct} of {site.nodes} hosts", figures)
    if distinct != site.nodes:
        return undecided(SRUN, f"{distinct} distinct hosts instead of {site.nodes}, or the output is cut", figures)
    return passed(SRUN, figures, f"{distinct} distinct hosts answered")


# ---- errors --------------------------------------------------------------------------------------------------------------------

_DAEMONS = re.compile(
    r"\bslurm(?:ctld|d|stepd|dbd)\b|\b(?:srun|sbatch|salloc|sinfo|squeue|scontrol|sacct|sacctmgr): |\b[Mm]unge|\bslurm_\w+:"
    r"|^\[\d{4}-\d\d-\d\dT[\d:]{8}\.\d{3}\] (?:\[[^\]\n]*\] )?(?:error|fatal): "
    r"|Node configuration differs from hardware|Slurmctld\(primary\)|file-less GPU|association|account/partition",
    re.MULTILINE,
)
_QUEUED = re.compile(r"\bjob (?P<job>\d{1,12}) (?:queued and )?waiting for resources|\bjob (?P<queued>\d{1,12}) queued")
_CLOCK = re.compile(r"^\[?(?:\S+[T ])?(\d\d):(\d\d):(\d\d)", re.MULTILINE)
_PING = re.compile(r"Slurmctld\((?P<which>\w+)\) at (?P<host>[\w.-]+) is (?P<state>UP|DOWN)")


def is_daemon_text(text: str) -> bool:
    """Return True for messages of Slurm's daemons and commands."""
    return _DAEMONS.search(text) is not None


def read_daemon_text(captured: CapturedText, _: SiteValues) -> ToolReading:
    """Return the reading of messages of Slurm: their first cause; a job that only waits is undecided."""
    text = captured.text
    errors = reader_slurm_errors.read(text)
    figures = _error_figures(text, errors[0].host if errors else "")
    queued = _QUEUED.search(text)
    if queued:
        figures["job"] = int(queued["job"] or queued["queued"])
    if queued and (not errors or errors[0].cause.startswith("the job waits")):
        words = errors[0].cause if errors else "the job waits in the queue"
        return undecided(SRUN, words, figures, next_step="sinfo -R and scontrol show partition tell why it does not start")
    if pings := list(_PING.finditer(text)):
        down = [ping["host"] for ping in pings if ping["state"] == "DOWN"]
        if down:
            return failed(SCONTROL, _HEALTH, f"slurmctld on {down[0]} is DOWN", figures | {"controllers": len(pings)})
        if not errors:
            return passed(SCONTROL, figures | {"controllers": len(pings)}, "slurmctld is UP")
    if not errors:
        return undecided(SLURM, "no error is recognised, and the text does not prove health", figures)
    if errors[0].rank is CauseRank.UNKNOWN:
        return msgspec.structs.replace(of_error(SLURM, errors[0], figures), next_step="read the daemon's log around this line")
    return of_error(SLURM, errors[0], figures)


def _error_figures(text: str, host: str) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if (seconds := reader_slurm_errors.skew(text)) is not None:
        figures["skew_seconds"] = seconds
    if "differs from hardware" in text:
        pairs = _pairs(text)
        figures["differs"] = {name: list(pair) for name, pair in pairs.items() if pair[0] != pair[1]}
        figures["same"] = [name for name, pair in pairs.items() if pair[0] == pair[1]]
    if host:
        figures["node"] = host
    if match := re.search(r"file-less GPU (\S{1,100})", text):
        figures["gres"] = match[1]
    if (waited := _waited(text)) is not None:
        figures["waited_seconds"] = waited
    return figures


def _pairs(text: str) -> dict[str, tuple[int, int]]:
    differences = re.findall(r"\b([A-Za-z]{1,40})=(\d{1,9}):(\d{1,9})\(hw\)", text[:100_000])
    return {name: (int(configured), int(hardware)) for name, configured, hardware in differences}


def _waited(text: str) -> int | None:
    """Return the seconds between slurmd's first wait for a device and its end; None if the text does not have both."""
    lines = text.splitlines()
    begin = next((line for line in lines if "Waiting for gres.conf file" in line), "")
    end = next((line for line in lines if "can't stat gres.conf file" in line), "")
    clocks = [_CLOCK.search(line) for line in (begin, end)]
    times = [timedelta(hours=int(at[1]), minutes=int(at[2]), seconds=int(at[3])) for at in clocks if at]
    if len(times) < 2:
        return None
    return round(((times[1] - times[0]) % timedelta(days=1)).total_seconds())
