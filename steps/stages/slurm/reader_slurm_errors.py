"""Finds errors that Slurm's daemons and tools print: authentication, hardware unlike its configuration, missing devices."""

import re
from datetime import datetime

from steps.contract.verdict import CauseRank, FailureClass, ToolError
from steps.stages.shared import reader_host, reader_mpi
from steps.stages.shared.reader_errors import Pattern, find, pattern

_LOGGED = r"\[\d{4}-\d\d-\d\dT[\d:.]+\] (?:\[[^\]\n]*\] )?"
"""Time before a line in a log of slurmctld, slurmd or slurmdbd; slurmstepd adds the job."""
_CREDENTIAL = re.compile(r"ENCODED: (?P<encoded>[^\n]+)\n[^\n]*DECODED: (?P<decoded>[^\n]+)")
_TIME = "%a %b %d %H:%M:%S %Y"
_DIFFERS = re.compile(r"\b(?P<key>[A-Za-z]+)=(?P<configured>\d+):(?P<hardware>\d+)\(hw\)")


def _expired(match: re.Match[str], line: str) -> ToolError:
    seconds = skew(match.string)
    difference = f"clock skew of {seconds} s" if seconds is not None else "clocks differ"
    return ToolError(
        cause=f"credential expired: {difference}",
        failure_class=FailureClass.PERMISSION,
        line=line,
        rank=CauseRank.PATH,
        next_step="set the clocks of both hosts by one time server (chronyc tracking on each), then restart munged",
    )


def skew(text: str) -> int | None:
    """Return the seconds between the clocks that made and read a credential; None if the text does not have both times."""
    match = _CREDENTIAL.search(text)
    if match is None:
        return None
    try:
        times = [datetime.strptime(match[name].strip(), _TIME) for name in ("encoded", "decoded")]
    except ValueError:
        return None
    return round(abs((times[1] - times[0]).total_seconds()))


def hardware_differences(text: str) -> dict[str, tuple[int, int]]:
    """Return the values that slurmd counts differently from its configuration: name → (configured, hardware)."""
    pairs = {match["key"]: (int(match["configured"]), int(match["hardware"])) for match in _DIFFERS.finditer(text[:10_000])}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def _hardware(match: re.Match[str], line: str) -> ToolError:
    what = ", ".join(hardware_differences(match.string))
    cause = f"node configuration differs from hardware: {what}"
    return ToolError(cause=cause, failure_class=FailureClass.INPUT, line=line, rank=CauseRank.SETTING)


_SETTING, _PATH, _CONSEQUENCE = CauseRank.SETTING, CauseRank.PATH, CauseRank.CONSEQUENCE

_DEVICES = (
    pattern(
        "gres.conf file",
        r"can't stat gres\.conf file (?P<device>\S+?): No such file",
        FailureClass.DEPENDENCY,
        "{device} missing (driver not loaded)",
        CauseRank.DEVICE,
    ),
    pattern(
        "count reported lower than configured",
        r"(?:node (?P<host>[\w.-]+) [^\n]*?)?(?P<what>gres/\S+ count reported lower than configured \(\d+ < \d+\))",
        FailureClass.HARDWARE,
        "{what}",
        CauseRank.DEVICE,
    ),
)
"""A node whose devices are not those that its configuration promises."""

_LOW = pattern(
    "has low ",
    r"Node (?P<host>[\w.-]+) has low (?P<what>\S+ \w+ \([^)\n]*\))",
    FailureClass.HARDWARE,
    "node {host} has less than its configuration promises: {what}",
    CauseRank.DEVICE,
    next_step="compare slurmd -C on the node with its line of slurm.conf, and see why it has less: a lost device or memory module",
)

_SETTINGS = (
    _LOW,
    pattern(
        "cgroup/v2 looking at all files",
        r"Couldn't find the specified plugin name for (?P<what>cgroup/v2)",
        FailureClass.INPUT,
        "slurmd has no plugin {what}: it was built without D-Bus and eBPF support",
        _SETTING,
        next_step="use a build of Slurm with cgroup v2 (libdbus and libbpf headers at its build), or CgroupPlugin=disabled",
    ),
    pattern(
        "cannot connect to dbus",
        r"(?P<what>cannot connect to dbus[^\n]*)",
        FailureClass.INPUT,
        "slurmd cannot ask systemd for a cgroup: {what}",
        _SETTING,
        next_step="set IgnoreSystemd=yes in cgroup.conf where slurmd runs without systemd, as in a pod",
    ),
    pattern(
        "[ERROR] ",
        r"pyxis: +\[ERROR\] (?P<what>[^\n]*40[13][^\n]*)",
        FailureClass.PERMISSION,
        "enroot may not fetch the image: {what}",
        _SETTING,
        next_step="give the registry's credentials in enroot's .credentials of this user",
    ),
    pattern(
        "pyxis:     nvidia-container-cli: ",
        r"pyxis: +nvidia-container-cli: (?P<what>[^\n]*)",
        FailureClass.DEPENDENCY,
        "the driver does not serve the container: {what}",
        CauseRank.DEVICE,
        next_step="nvidia-smi on the node: a driver that was updated needs its modules reloaded or a reboot",
    ),
    pattern(
        "[ERROR] ",
        r"pyxis: +\[ERROR\] (?!\S*/hooks\.d/)(?P<what>[^\n]*)",
        FailureClass.RUNTIME,
        "enroot: {what}",
        next_step="read the lines of enroot's log before this one",
    ),
    Pattern("Node configuration differs from hardware", re.compile("Node configuration differs from hardware"), _hardware, True),
    pattern(
        "libnvidia-ml.so",
        r"libnvidia-ml\.so\S*: cannot open shared object file",
        FailureClass.DEPENDENCY,
        "libnvidia-ml.so.1 not found (driver libraries not in the pod)",
        _SETTING,
        next_step="see that the pod gets a GPU by the NVIDIA runtime class, which mounts the driver's libraries",
    ),
    pattern(
        "file-less GPU",
        r"Ignoring file-less GPU (?P<what>\S+)",
        FailureClass.INPUT,
        "gres.conf gives no File for {what}",
        _SETTING,
        next_step="write File= for this Gres, or use an image of slurmd with NVML for AutoDetect",
    ),
    pattern(
        "can't stat /dev/",
        r"can't stat (?P<device>/dev/\S+)",
        FailureClass.INPUT,
        "{device} in gres.conf but not on this node",
        _SETTING,
        next_step="limit the line of gres.conf to the nodes that have the device (NodeName=)",
    ),
    pattern(
        "unable to create cgroup",
        r"unable to create cgroup '?(?P<what>/[^'\n]*)'? ?: Read-only file system",
        FailureClass.INPUT,
        "slurmd may not write cgroups: /sys/fs/cgroup is read-only",
        _SETTING,
        next_step="let slurmd run privileged, or set CgroupPlugin=disabled",
    ),
    pattern(
        "pids from outside of our pid namespace",
        r"pids from outside of our pid namespace",
        FailureClass.INPUT,
        "cgroup tree is of another pid namespace",
        _SETTING,
        next_step="do not mount the host's /sys/fs/cgroup into an unprivileged pod",
    ),
    pattern(
        "Invalid account",
        r"Invalid account or account/partition combination specified",
        FailureClass.PERMISSION,
        "no association for this user and account",
        _SETTING,
        next_step="sacctmgr show assoc: add the user to the account, and see that slurmctld resolves the user's id",
    ),
)
"""Configurations with which a daemon or a job cannot start."""

_CREDENTIALS = (
    *(
        # the clock of the reader is ahead of the writer's in the one, behind it in the other
        Pattern(f"Munge decode failed: {word} credential", re.compile(f"Munge decode failed: {word} credential"), _expired, True)
        for word in ("Expired", "Rewound")
    ),
    pattern(
        "auth/slurm: ",
        r"(?:\[(?P<host>[\w.-]+)\]: )?auth/slurm: (?P<what>[^\n]*\b(?:expired|not yet valid|iat|exp)\b[^\n]*)",
        FailureClass.PERMISSION,
        "credential expired: {what}",
        _PATH,
        next_step="compare the clocks of this host and of slurmctld, and the keys in slurm.key",
    ),
    pattern(
        "Munge decode failed: Invalid credential",
        r"Munge decode failed: Invalid credential",
        FailureClass.PERMISSION,
        "munge key mismatch",
        _PATH,
        next_step="give all hosts one /etc/munge/munge.key (compare its sha256sum), and restart munged",
    ),
    pattern(
        "munge.socket",
        r"Unable to access \"[^\"\n]*munge\.socket[^\"\n]*\"",
        FailureClass.DEPENDENCY,
        "munged socket missing",
        _PATH,
    ),
    pattern(
        "Invalid job credential",
        r"Task launch for \S+ failed on node (?P<host>[\w.-]+): Invalid job credential",
        FailureClass.PERMISSION,
        "Invalid job credential on node {host}",
        _PATH,
    ),
    pattern(
        "Zero Bytes were transmitted or received",
        r"Zero Bytes were transmitted or received",
        FailureClass.PERMISSION,
        "controller closed the connection (authentication)",
        _PATH,
    ),
    pattern(
        "Unable to contact slurm controller",
        r"Unable to contact slurm controller \((?P<what>[^)\n]*)\)",
        FailureClass.DEPENDENCY,
        "slurmctld does not answer: {what}",
        _PATH,
        next_step="see slurmctld's log, SlurmctldHost of slurm.conf, and the way to its port 6817",
    ),
)
"""Daemons that do not reach or trust each other."""

_JOBS = (
    pattern(
        "rolog",
        r"(?:JobId=|\[job )(?P<what>\d+)[^\n]*[Pp]rolog (?:error|failed)|[Pp]rolog (?:launch )?failure, JobId=(?P<job>\d+)",
        FailureClass.RUNTIME,
        "the prolog of job {what}{job} failed",
        next_step="run the script that Prolog of slurm.conf names on the node, and read slurmd's log there",
    ),
    pattern(
        "rolog or job env setup failure on node",
        r"rolog or job env setup failure on node (?P<host>[\w.-]+)",
        FailureClass.RUNTIME,
        "the prolog failed on node {host}, which is drained",
        next_step="run the script that Prolog of slurm.conf names on the node, and read slurmd's log there",
    ),
    pattern(
        " not responding",
        r"Nodes? (?P<host>[\w.,\[\]-]+) not responding",
        FailureClass.HEALTH,
        "nodes {host} do not answer slurmctld",
        CauseRank.SILENCE,
        next_step="see slurmd and its port 6818 on these nodes, firewalls between, and whether slurmctld resolves their names",
    ),
    pattern(
        "Node failure on ",
        r"Node failure on (?P<host>[\w.,\[\]-]+)",
        FailureClass.HARDWARE,
        "node {host} failed during the job",
        CauseRank.SILENCE,
        next_step="see the node's console and kernel log, and slurmctld's log about it",
    ),
    pattern(
        "DUE TO NODE FAILURE",
        r"STEP \S+ ON (?P<host>[\w.-]+) CANCELLED [^\n]*?(?P<what>DUE TO NODE FAILURE)",
        FailureClass.RUNTIME,
        "the job was cancelled on {host}: {what}",
        _CONSEQUENCE,
    ),
    pattern(
        "pyxis: ",
        r"error: (?P<what>pyxis: (?:child \d+ failed|failed to import|couldn't start|container start failed|printing)[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
        _CONSEQUENCE,
    ),
    pattern(
        "spank",
        r"error: (?P<what>(?:spank: required plugin|Failed to invoke spank plugin stack)[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
        _CONSEQUENCE,
    ),
    pattern(
        "oom_kill event",
        r"(?:(?P<host>[\w.-]+): )?slurmstepd: error: Detected \d+ oom[_-]kill event",
        FailureClass.RUNTIME,
        "the job ran out of memory and was killed",
        next_step="raise --mem of the job, or the memory that the node configuration gives",
    ),
    pattern(
        "srun: error:",
        r"srun: error: (?P<what>(?:Unable to (?:allocate|create)|Required node not available|Requested node configuration)[^\n]*)",
        FailureClass.RUNTIME,
        "{what}",
    ),
    pattern(
        "srun: ",
        r"srun: (?P<what>Requested (?:partition|node) configuration not available[^\n]*|Required node not available[^\n]*)",
        FailureClass.RUNTIME,
        "the job waits: {what}",
        next_step="sinfo -R and scontrol show partition: nodes that are down or drained, or a request above what a node has",
    ),
    pattern(
        "srun: error:",
        r"srun: error: (?P<host>[\w.-]+): tasks? [\d,-]+: (?P<what>[^\n]*)",
        FailureClass.RUNTIME,
        "task on {host}: {what}",
        _CONSEQUENCE,
    ),
    # the daemons' own logs have a time in brackets before the level, their output on a terminal the daemon's name
    *(
        pattern(
            f"{level}: ",
            rf"(?P<what>(?:\b[a-z_]+: |{_LOGGED}){level}: [^\n]*)",
            FailureClass.RUNTIME,
            "{what}",
            CauseRank.UNKNOWN,
        )
        for level in ("error", "fatal")
    ),
)
"""Jobs that do not start or fail, and errors that no other rule knows, quoted."""

PATTERNS: tuple[Pattern, ...] = (*_DEVICES, *_SETTINGS, *_CREDENTIALS, *_JOBS)
"""Patterns of Slurm's daemons and tools, in the order of causes."""


def read(text: str) -> tuple[ToolError, ...]:
    """Return the errors of Slurm's daemons and tools, and of what srun starts, in a text, the first cause first."""
    return find(text, (*reader_host.PATTERNS, *PATTERNS, *reader_mpi.PATTERNS, *reader_mpi.LATE_PATTERNS))
