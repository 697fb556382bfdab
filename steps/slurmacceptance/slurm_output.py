"""Parses what Slurm's tools print for an acceptance, in the text form of Slurm 22.05 and newer; pure, never raises."""

import re
from collections.abc import Iterator
from typing import Any, Final

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.readers import osu_table
from steps.stages.slurm import reader, reader_slurm_errors
from steps.stages.slurm_acceptance.contract import ControllerAnswer, ListedNode, NodeAnswer, SlurmSettings

ANSWER: Final = "bringup-node"
"""First word of each line that a job's task prints for us."""
_PING: Final = re.compile(r"Slurmctld\((?P<role>[\w/]+)\)(?: at (?P<host>[\w.-]+))? is (?P<state>UP|DOWN)")
_SETTING: Final = re.compile(r"^(?P<key>[A-Za-z]\w*(?:\[\d+\])?)\s+= ?(?P<value>.*)$", re.MULTILINE)
_TYPE: Final = re.compile(r"(?:^|,)gpu:(?P<type>[A-Za-z][^:,()]*)(?=[:,(]|$)")
_SWITCH: Final = re.compile(r"^\s*(?:SwitchName|BlockName)=(?P<name>[\w.-]+)(?P<rest>[^\n]*)", re.MULTILINE | re.IGNORECASE)
_NODES: Final = re.compile(r"\bNodes=(?P<nodes>\S+)", re.IGNORECASE)
_DECODE: Final = re.compile(r"Munge decode failed: (?P<kind>Invalid|Expired|Rewound) credential")
_REJECTED: Final = re.compile(
    r"\[\[(?P<node>[\w.-]+)\]:\d+\] auth_g_verify: MESSAGE_NODE_REGISTRATION_STATUS has authentication error"
)
_HEALED: Final = re.compile(r"Node (?P<node>[\w.-]+) now responding")
_CONF: Final = re.compile(r"error: Node (?P<node>[\w.-]+) appears to have a different slurm\.conf than the slurmctld")
_MOST_LINE: Final = 400


def controllers(text: str) -> tuple[ControllerAnswer, ...]:
    """Return the answers of `scontrol ping`."""
    return tuple(
        ControllerAnswer(role=match["role"], host=match["host"] or "", up=match["state"] == "UP") for match in _PING.finditer(text)
    )


def settings(text: str) -> SlurmSettings:
    """Return the settings in `scontrol show config`."""
    values = _values(text)
    hashed = values.get("HASH_VAL", "")
    return SlurmSettings(
        cluster=values.get("ClusterName", ""),
        version=values.get("SLURM_VERSION", ""),
        matches=_matches(hashed),
        topology=values.get("TopologyPlugin", ""),
        accounting=values.get("AccountingStorageType", ""),
    )


def scripts(text: str) -> tuple[str | None, str | None]:
    """Return prolog and epilog in `scontrol show config`: empty if none is configured, None if the text does not say.

    Releases that take several of them number each, as in `Prolog[0]`.
    """
    values = _values(text)

    def path(name: str) -> str | None:
        return values.get(name, values.get(f"{name}[0]"))

    return path("Prolog"), path("Epilog")


def _values(text: str) -> dict[str, str]:
    """Return the values of `scontrol show config`, empty ones for `(null)` and `none`."""
    values = ((match["key"], match["value"].strip()) for match in _SETTING.finditer(text))
    return {key: "" if value in ("(null)", "none") else value for key, value in values}


def _matches(hashed: str) -> bool | None:
    """Return what a HASH_VAL says: `Match`, or `Different` with both hashes."""
    if hashed == "Match":
        return True
    return False if hashed.startswith("Different") else None


def configuration_file(text: str) -> str:
    """Return the path of slurm.conf in `scontrol show config`; empty if it is not there."""
    return _values(text).get("SLURM_CONF", "")


def log_file(text: str) -> str:
    """Return the path of slurmctld's log in `scontrol show config`; empty if it logs to syslog alone."""
    value = _values(text).get("SlurmctldLogFile", "")
    return value if value.startswith("/") else ""


def nodes(text: str) -> tuple[ListedNode, ...]:
    """Return the nodes in `scontrol --oneliner show node`."""
    rows = []
    for line in text.splitlines():
        for node in reader.records(line)[:1]:
            fields = reader.fields(line)
            rows.append(
                ListedNode(
                    name=node.name,
                    states=node.states,
                    reason=node.reason,
                    gpu_type=",".join(dict.fromkeys(match["type"] for match in _TYPE.finditer(node.gres))),
                    gpus=node.gpus,
                    memory=int(fields["RealMemory"]) if fields.get("RealMemory", "").isdigit() else 0,
                    version=fields.get("Version", ""),
                )
            )
    return tuple(rows)


def partitions(text: str) -> tuple[dict[str, str], dict[str, tuple[str, ...]]]:
    """Return state and nodes of each partition in `scontrol --oneliner show partition`; the default one also as ""."""
    states, members = {}, {}
    for line in text.splitlines():
        fields = reader.fields(line)
        if name := fields.get("PartitionName", ""):
            listed = reader.expand_hostlist(fields.get("Nodes", "").replace("(null)", ""))
            for key in (name, "") if fields.get("Default") == "YES" else (name,):
                states[key], members[key] = fields.get("State", ""), listed
    return states, members


def leaves(text: str) -> dict[str, tuple[str, ...]]:
    """Return leaf switch or block → nodes in `scontrol show topology` or topology.conf; switches of switches are left out."""
    matches = ((match["name"], match["rest"]) for match in _SWITCH.finditer(text))
    listed = [
        (name, nodes["nodes"]) for name, rest in matches if "switches=" not in rest.lower() and (nodes := _NODES.search(rest))
    ]
    hosts = reader.expand_hostlists(nodes for _, nodes in listed)
    return {name: tuple(sorted(names)) for (name, _), names in zip(listed, hosts, strict=True)}


def leaves_of_yaml(text: str) -> dict[str, tuple[str, ...]]:
    """Return leaf switch or block → nodes of the cluster's default topology in topology.yaml; empty if it has none.

    Format: https://slurm.schedmd.com/topology.yaml.html.
    """
    import yaml  # 30 ms that clusters without such a file do not pay

    try:
        document = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    topologies = _maps(document)
    default = next((row for row in topologies if row.get("cluster_default") is True), topologies[0] if topologies else {})
    rows = [(row.get("switch"), row.get("nodes")) for row in _maps(_map(default.get("tree")).get("switches"))]
    rows += [(row.get("block"), row.get("nodes")) for row in _maps(_map(default.get("block")).get("blocks"))]
    listed = [(str(name), nodes) for name, nodes in rows if name and isinstance(nodes, str)]
    hosts = reader.expand_hostlists(nodes for _, nodes in listed)
    return {name: tuple(sorted(names)) for (name, _), names in zip(listed, hosts, strict=True)}


def _map(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _maps(value: object) -> list[dict[str, Any]]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def causes(log: str) -> dict[str, ToolError]:
    """Return node → cause of nodes that slurmctld's log refuses or whose configuration differs; its last word counts."""
    causes_by_node: dict[str, ToolError] = {}
    decode, start = "", 0
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if match := _DECODE.search(line):
            decode, start = match["kind"], number
        elif match := _REJECTED.search(line):
            causes_by_node[match["node"]] = _refused(decode, lines[start : number + 1], line)
        elif match := _CONF.search(line):
            causes_by_node[match["node"]] = _error(
                "slurm.conf differs from slurmctld's", FailureClass.INPUT, line, "distribute one slurm.conf"
            )
        elif match := _HEALED.search(line):
            causes_by_node.pop(match["node"], None)
    return causes_by_node


def _refused(decode: str, lines: list[str], line: str) -> ToolError:
    if decode == "Invalid":
        step = "copy munge.key from the controller to the node, and restart munge and slurmd there"
        return _error("munge key mismatch: slurmctld refuses its credentials", FailureClass.PERMISSION, line, step)
    if decode in ("Expired", "Rewound"):
        seconds = reader_slurm_errors.skew("\n".join(lines))
        amount = "" if seconds is None else f" by {seconds} s"
        step = "correct its clock (chronyc tracking), then restart munge and slurmd there"
        return _error(f"its clock differs{amount}: credential {decode.lower()}", FailureClass.PERMISSION, line, step)
    return _error("slurmctld refuses its credentials", FailureClass.PERMISSION, line, "see munge's log on the node")


def _error(cause: str, failure_class: FailureClass, line: str, step: str) -> ToolError:
    return ToolError(cause=cause, failure_class=failure_class, line=line[:_MOST_LINE], rank=CauseRank.PATH, next_step=step)


def tool_error(command: str, code: int, text: str) -> ToolError:
    """Return the error of a command that failed, by what it printed."""
    line = next((line for line in text.splitlines() if line.strip()), f"exit code {code} without a word")[:_MOST_LINE]
    known = reader_slurm_errors.read(text)
    if known and known[0].rank is not CauseRank.UNKNOWN:
        return known[0]
    kind = FailureClass.DEPENDENCY if "Connection refused" in text or "Unable to contact" in text else FailureClass.RUNTIME
    cause = f"{command} failed"
    if "PersistInit" in text or "database" in text:
        cause, kind = "the accounting daemon slurmdbd does not answer", FailureClass.DEPENDENCY
    return ToolError(cause=cause, failure_class=kind, line=line)


def node_words(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield node and words of each line that a job's task printed for us."""
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 3 and words[0] == ANSWER:
            yield words[1], words[2:]


def answers(text: str, login_time: float) -> tuple[NodeAnswer, ...]:
    """Return the answers of a job on all nodes. `login_time` is the login node's time in seconds when the job ended."""
    values: dict[str, dict[str, str]] = {}
    for node, words in node_words(text):
        values.setdefault(node, {})[words[0]] = " ".join(words[1:])
    return tuple(_answer(node, words, login_time) for node, words in sorted(values.items()))


def _answer(node: str, words: dict[str, str], login_time: float) -> NodeAnswer:
    clock = _number(words.get("clock"))
    return NodeAnswer(
        node=node,
        host=words.get("host", ""),
        boot=words.get("boot", ""),
        skew=None if clock is None else clock - login_time,
        matches=_matches(words.get("hash", "")),
        gpus=_number(words.get("gpus")),
        devices=_number(words.get("devices")),
    )


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 13 else None


_TASK_FAILED: Final = re.compile(
    r"(?:srun: error: (?P<host>[\w.-]+): tasks?[^\n]*|Task launch for \S+ failed on node (?P<node>[\w.-]+): (?P<why>[^\n]*)"
    r"|srun: error: Node failure on (?P<lost>[\w.-]+))"
)


def failed_nodes(text: str) -> dict[str, str]:
    """Return node → what srun says of it, for nodes that it names as failed."""
    rows: dict[str, str] = {}
    for match in _TASK_FAILED.finditer(text):
        name = match["host"] or match["node"] or match["lost"]
        rows.setdefault(name, match[0].removeprefix("srun: error: ")[:_MOST_LINE])
    return rows


_ROW: Final = re.compile(r"^\s*(?P<size>\d{1,12})\s+(?P<figure>\d+(?:\.\d+)?)\s*(?:$|\s)", re.MULTILINE)


def slowest_direction(text: str) -> float | None:
    """Return GB/s at the largest size, of the slowest table if there are several; None if nothing sound was measured.

    Tables of OSU's programs are read as such: one whose data was wrong, or that is no bandwidth, gives None. Other programs print
    rows of `SIZE MB/s`; a line that begins with `#`, or a smaller size than in the row before, begins a new table.
    """
    if tables := osu_table.read(text):
        rows = [table.largest for table in tables]
        sound = [row.value for row in rows if row is not None and row.validation != "Fail"]
        return min(sound) / 1000 if len(sound) == len(tables) and all(table.unit == "MB/s" for table in tables) else None
    figures = [max(rows)[1] for rows in _plain_tables(text) if rows]
    return min(figures) / 1000 if figures else None


def _plain_tables(text: str) -> list[list[tuple[int, float]]]:
    tables: list[list[tuple[int, float]]] = [[]]
    for line in text.splitlines():
        if line.lstrip().startswith("#"):
            tables.append([])
        elif match := _ROW.match(line):
            size = int(match["size"])
            if tables[-1] and size < tables[-1][-1][0]:
                tables.append([])
            tables[-1].append((size, float(match["figure"])))
    return tables
