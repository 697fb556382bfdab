"""Parses the output of check `slurm-jobs`: answers of scontrol, sinfo, sacct and sacctmgr about the jobs that it submitted; pure.

Formats: https://slurm.schedmd.com/scontrol.html, https://slurm.schedmd.com/sacct.html.
"""

import re
from collections.abc import Iterable, Mapping

from steps.stages.slurm import reader, reader_slurm_errors
from steps.stages.slurm.contract import JobsReport, PartitionState, SlurmJob

PREFIX = "bringup-"
"""Beginning of the names of the check's jobs; the check's name follows."""
MOST_ROWS = 10_000
"""Most rows of a section that are read; the check has about twenty jobs."""
MOST_COMMENT = 200
_NUMBER = re.compile(r"-?\d{1,15}")
_PING = re.compile(r"^Slurmctld\((?P<role>\w+)\) at \S+ is (?P<state>\w+)", re.MULTILINE)
_STEP = re.compile(r"^\d+(?:_\d+|\+\d+)?\.\d+$")
_YAML_SWITCH = re.compile(r"^ *- switch: *(?P<name>[\w.-]+)\n +nodes: *(?P<nodes>\S+) *$", re.MULTILINE)
"""A leaf switch in topology.yaml (Slurm 25.05), https://slurm.schedmd.com/topology.yaml.html."""
_NAMES = re.compile(r"(?<!\S)(?P<key>[A-Za-z]\w*)=(?P<value>\S*)")


def read(text: str) -> JobsReport:
    """Return the report in the output of the check's script, sections that begin with `@NAME`."""
    sections = {name.strip(): body for name, _, body in (part.partition("\n") for part in ("\n" + text).split("\n@")[1:])}
    lines = {name: body.splitlines()[:MOST_ROWS] for name, body in sections.items()}
    records, steps = _accounted(lines.get("sacct", ()))
    nodes = reader.with_reasons(reader.sinfo(sections.get("sinfo", "")), reader.reasons(sections.get("reasons", "")))
    return JobsReport(
        controllers=tuple(f"{match['role']} {match['state']}" for match in _PING.finditer(sections.get("ping", ""))),
        partitions=_partitions(lines.get("partitions", ()), lines.get("sharing", ())),
        qos=tuple(line.strip() for line in lines.get("qos", ()) if line.strip()),
        topology=_switches(lines.get("topology", ())),
        topology_file=_switches(lines.get("topology_conf", ())),
        jobs=_jobs((*lines.get("jobs", ()), *_waiting(lines.get("waiting", ()))), records, steps),
        refusals={row[0]: row[1] for row in _rows(lines.get("refusals", ()), 2)},
        answers={f"{row[0]} {row[1]}": row[2] for row in _rows(lines.get("answers", ()), 3)},
        metrics=_metrics(lines.get("metrics", ())),
        boots=tuple(line.strip() for line in lines.get("boots", ()) if line.strip()),
        remaining=tuple(line.removeprefix(PREFIX) for line in lines.get("left", ()) if line.strip()),
        nodes=nodes,
        errors=reader_slurm_errors.read("\n".join((sections.get("errors", ""), sections.get("ping", "")))),
    )


def _rows(lines: Iterable[str], count: int) -> list[list[str]]:
    rows = (line.split("|", count - 1) for line in lines)
    return [row for row in rows if len(row) == count]


def _partitions(lines: Iterable[str], details: Iterable[str]) -> tuple[PartitionState, ...]:
    """Return the partitions in lines `NAME|AVAILABLE|HOSTLIST`; a partition has a line for each state of its nodes.

    `details` are lines of `scontrol show partition -o`, with the partition's rule of sharing.
    """
    fields = ({match["key"]: match["value"] for match in _NAMES.finditer(line)} for line in details)
    sharing = {row.get("PartitionName", ""): row.get("OverSubscribe", "") for row in fields}
    nodes: dict[str, dict[str, None]] = {}
    available: dict[str, str] = {}
    for name, state, hosts in _rows(lines, 3):
        nodes.setdefault(name, {}).update(dict.fromkeys(reader.expand_hostlist(hosts)))
        # one line that is not up decides
        available[name] = state if available.get(name, "up") == "up" else available[name]
    return tuple(
        PartitionState(name=name, available=available[name], nodes=tuple(hosts), oversubscribe=sharing.get(name, ""))
        for name, hosts in nodes.items()
    )


def _switches(lines: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return leaf switch → nodes in lines `SwitchName=… Nodes=…` or of topology.yaml; switches above switches are left out."""
    text = "\n".join(lines)
    fields = ({match["key"]: match["value"] for match in _NAMES.finditer(line)} for line in text.splitlines())
    leaves = (row for row in fields if row.get("SwitchName") and row.get("Nodes") and row.get("Level", "0") == "0")
    leaf_nodes = {row["SwitchName"]: row["Nodes"] for row in leaves if not row.get("Switches")}
    leaf_nodes |= {match["name"]: match["nodes"] for match in _YAML_SWITCH.finditer(text)}
    return {name: reader.expand_hostlist(nodes) for name, nodes in leaf_nodes.items()}


def _jobs(lines: Iterable[str], records: Mapping[str, str], steps: Mapping[str, int]) -> tuple[SlurmJob, ...]:
    jobs: dict[str, SlurmJob] = {}
    for line in lines:
        row = {match["key"]: match["value"] for match in _NAMES.finditer(line)}
        name, number = row.get("JobName", ""), row.get("JobId", "")
        if not name.startswith(PREFIX) or not number:
            continue
        jobs[number] = SlurmJob(
            check=name.removeprefix(PREFIX),
            id=number,
            state=row.get("JobState", ""),
            exit_code=row.get("ExitCode", ""),
            reason="" if row.get("Reason") == "None" else row.get("Reason", ""),
            nodes=reader.expand_hostlist(row.get("NodeList", "").replace("(null)", "")),
            restarts=int(row["Restarts"]) if row.get("Restarts", "").isdigit() else 0,
            start=row.get("StartTime", ""),
            end=row.get("EndTime", ""),
            accounted=records.get(number, ""),
            steps=steps.get(number, 0),
            comment=row.get("Comment", "").replace("(null)", "")[:MOST_COMMENT],
        )
    return tuple(jobs[number] for number in sorted(jobs, key=lambda number: (len(number), number)))


def _metrics(lines: Iterable[str]) -> dict[str, int]:
    """Return metric → sum of its values in lines `NAME|SUM`; lines with other numbers are left out."""
    return {name: int(total) for name, total in _rows(lines, 2) if _NUMBER.fullmatch(total)}


def _waiting(lines: Iterable[str]) -> list[str]:
    """Return the jobs that waited in the queue, in lines `NAME|ID|STATE|REASON`, as records of scontrol."""
    return [f"JobId={row[1]} JobName={row[0]} JobState={row[2]} Reason={row[3]}" for row in _rows(lines, 4)]


def _accounted(lines: Iterable[str]) -> tuple[dict[str, str], dict[str, int]]:
    """Return job → `STATE EXITCODE` and job → number of its steps in lines `ID|NAME|STATE|EXITCODE` of sacct."""
    records: dict[str, str] = {}
    steps: dict[str, int] = {}
    for number, _, state, code in _rows(lines, 4):
        if _STEP.match(number):
            job = number.partition(".")[0]
            steps[job] = steps.get(job, 0) + 1
        elif "." not in number:
            records[number] = f"{state.split()[0] if state else ''} {code}"
    return records, steps
