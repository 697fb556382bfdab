"""Eight hosts with sshd on a fabric of two leaf switches, MPI programs on them by mpirun and SSH, and the faults of the fabric."""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hostlab import lab, network
from hostlab.host import Host
from hostlab.lab import Lab
from hostlab.waiting import until

from mpilab import fabric

PROGRAMS: Final = ("osu_latency", "osu_bw", "osu_bibw", "osu_allreduce", "osu_alltoall")
FOLDER: Final = "/usr/local/bin"
START_SECONDS: Final = 60.0
"""Time for sshd, an SSH connection or the relay to be there: far below a second on an idle machine."""
LAUNCH_SECONDS: Final = 60
"""Limit of one launch: half a second on an idle machine, and a few seconds on a disturbed link."""
PATH: Final = "/usr/sbin:/usr/bin:/sbin:/bin"
"""Debian's OpenMPI on both sides, whatever else this machine's users have."""
_DELAYED: Final = "delay0"
_RELAY: Final = Path(__file__).with_name("delay_relay.py")
_SSH: Final = """\
Host *
  User root
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile {known_hosts}
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
  ControlPath {folder}/ssh-%h
"""
"""Each launch is a session in a connection that is there already: key exchanges took more CPU than all the rest."""
_MCA: Final = {
    "plm": "rsh",
    "plm_rsh_no_tree_spawn": "1",
    "oob_tcp_if_include": fabric.MANAGEMENT,
    "btl": "tcp,self",
    "btl_tcp_if_include": fabric.NETWORK,
    "pml": "ob1",
    "mpi_yield_when_idle": "1",
    "hwloc_base_binding_policy": "none",
}
"""Settings of the site: MPI over TCP on the fabric, daemons over the hosts' own network."""


@dataclass(frozen=True)
class Launch:
    """Result of one mpirun: its command line with what the program printed, and why there is no table."""

    text: str
    problem: str = ""


@dataclass(frozen=True)
class MpiCluster:
    """The running hosts and their fabric. mpirun runs on this machine, as on a login node."""

    lab: Lab

    @property
    def hosts(self) -> tuple[Host, ...]:
        """Return the hosts in the order of their addresses; the first half is on the first leaf."""
        return self.lab.hosts

    @property
    def leaves(self) -> tuple[str, ...]:
        """Return the leaf of each host."""
        return tuple(fabric.LEAVES[fabric.leaf_of(number, len(self.hosts))] for number in range(len(self.hosts)))

    def launch(self, names: Sequence[str], program: str, *options: str) -> Launch:
        """Run a program with one rank on each of these hosts."""
        addresses = {host.name: host.address for host in self.hosts}
        ranks = ",".join(addresses[name] for name in names)
        words = ["mpirun", "-np", str(len(names)), "--host", ranks, "--map-by", "node", "--wdir", "/tmp"]
        words += ["--timeout", str(LAUNCH_SECONDS), f"{FOLDER}/{program}", *options]
        command = f"$ {' '.join(words)}\n"
        try:
            done = subprocess.run(
                words, env=self._environment(), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=2 * LAUNCH_SECONDS
            )
        except subprocess.TimeoutExpired:
            return Launch(command, "mpirun does not end")
        problem = "" if done.returncode == 0 else f"mpirun ended with {done.returncode}: {done.stderr.strip()[-600:]}"
        return Launch(command + done.stdout, problem)

    @contextlib.contextmanager
    def slow(self, host: Host) -> Iterator[None]:
        """Fault: a host sends at a twentieth of its rate."""
        fabric.shape(host, fabric.SLOW)
        try:
            yield
        finally:
            fabric.shape(host, fabric.HEALTHY)

    @contextlib.contextmanager
    def slow_trunk(self) -> Iterator[None]:
        """Fault: the link between the leaves has a twentieth of the rate of one host, in both directions."""
        fabric.shape_trunk(fabric.SLOW)
        try:
            yield
        finally:
            fabric.unshape_trunk()

    @contextlib.contextmanager
    def lossy(self, host: Host, peer: Host, share: float) -> Iterator[None]:
        """Fault: two hosts lose this share of the long packets that they send each other, as by bit errors."""
        rules = [self._drop(sender, share) for sender in (peer, host)]
        with contextlib.ExitStack() as stack:
            for receiver, rule in zip((host, peer), rules, strict=True):
                receiver.run("iptables", "--append", *rule)
                stack.callback(receiver.run, "iptables", "--delete", *rule)
            yield

    def _drop(self, sender: Host, share: float) -> tuple[str, ...]:
        source = ("--in-interface", fabric.DEVICE, "--source", self._fabric_address(sender))
        # short packets pass, else TCP would wait for seconds before its connection is there
        long = ("--match", "length", "--length", "500:65535")
        return ("INPUT", *source, *long, "--match", "statistic", "--mode", "random", "--probability", str(share), "--jump", "DROP")

    @contextlib.contextmanager
    def delayed(self, host: Host, peer: Host, seconds: float) -> Iterator[None]:
        """Fault: what a host sends to one other host arrives so many seconds later."""
        space, target = network.namespace(host.name), self._fabric_address(peer)
        words = ["ip", "netns", "exec", space, sys.executable, "-I", str(_RELAY), _DELAYED, fabric.DEVICE, str(seconds)]
        with subprocess.Popen(words, stdin=subprocess.DEVNULL) as relay:
            try:
                if not until(lambda: _has_device(space, _DELAYED), START_SECONDS):
                    raise RuntimeError(f"the relay of {host.name} does not start")
                route = f"route add {target}/32 dev {_DELAYED} src {self._fabric_address(host)}"
                network.batch([f"link set {_DELAYED} up", route], "-n", space)
                yield
            finally:
                relay.terminate()

    def _fabric_address(self, host: Host) -> str:
        return fabric.address(self.hosts.index(host))

    def _environment(self) -> dict[str, str]:
        settings = _MCA | {"plm_rsh_agent": f"ssh -F {self.lab.folder}/ssh_config"}
        own = {"PATH": PATH, "HOME": str(self.lab.folder), "TMPDIR": str(self.lab.folder)}
        own |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return own | {f"OMPI_MCA_{name}": value for name, value in settings.items()}

    # ---- set-up --------------------------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Make the fabric, and let each host take SSH sessions and have the programs. Raises RuntimeError."""
        fabric.up(self.hosts)
        binary = self.lab.folder / "osu_programs"
        source = Path(__file__).with_name("osu_programs.c")
        words = ["mpicc", "-O1", "-Wall", "-Werror", "-o", str(binary), str(source)]
        subprocess.run(words, check=True, stdin=subprocess.DEVNULL, env=self._environment())
        text = _SSH.format(key=self.lab.key, known_hosts=self.lab.known_hosts, folder=self.lab.folder)
        (self.lab.folder / "ssh_config").write_text(text)
        with ThreadPoolExecutor(len(self.hosts)) as pool:
            list(pool.map(lambda host: self._prepare(host, binary), self.hosts))

    def _prepare(self, host: Host, binary: Path) -> None:
        root = Path(f"/proc/{host.init()}/root")
        shutil.copy(binary, root / FOLDER[1:] / PROGRAMS[0])
        links = "".join(f"ln -f {PROGRAMS[0]} {name};" for name in PROGRAMS[1:])
        settings = "/proc/sys/net/ipv4"
        script = (
            # ranks find by the names of their hosts that they are not on one host
            f"hostname {host.name};"
            # a session's shell reads the set-up of this machine's user, which would take longer than a test
            f" rm -f /root/.bashrc; cd {FOLDER}; {links}"
            # the way back from a delayed peer is another one than the way there
            f" for name in all {fabric.DEVICE}; do echo 0 > {settings}/conf/$name/rp_filter; done;"
            # kernels from 6.15 on: TCP tries again each second, where it would wait for minutes after some losses in a row
            f" if [ -e {settings}/tcp_rto_max_ms ]; then echo 1000 > {settings}/tcp_rto_max_ms; fi;"
        )
        host.run("sh", "-ec", script)

    @contextlib.contextmanager
    def connections(self) -> Iterator[None]:
        """Keep an SSH connection to each host, in which mpirun's sessions run."""
        with contextlib.ExitStack() as stack:
            for host in self.hosts:
                words = ["ssh", "-F", f"{self.lab.folder}/ssh_config", "-M", "-N", host.address]
                connection = stack.enter_context(subprocess.Popen(words, stdin=subprocess.DEVNULL))
                stack.callback(connection.terminate)
            for host in self.hosts:
                if not until((self.lab.folder / f"ssh-{host.address}").exists, START_SECONDS):
                    raise RuntimeError(f"no SSH connection to {host.name}: {host.log.read_text()[-600:]}")
            yield


def _has_device(space: str, name: str) -> bool:
    return subprocess.run(["ip", "-n", space, "link", "show", name], capture_output=True, check=False).returncode == 0


@contextlib.contextmanager
def running(count: int) -> Iterator[MpiCluster]:
    """Make so many hosts with their fabric, and remove them afterwards."""
    lab.down()
    fabric.down()
    cluster = MpiCluster(lab.up(count, lab.Init.SSHD, lower=Path("/")))
    try:
        cluster.prepare()
        with cluster.connections():
            yield cluster
    finally:
        lab.down()
        fabric.down()
