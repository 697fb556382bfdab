"""The cluster: a controller with accounting and login on host n000, slurmd on all others, and the faults that tests make there."""

import contextlib
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from hostlab import lab
from hostlab.host import Host
from hostlab.waiting import until

from slurmlab import configuration, namespace_calls, shared_folder
from slurmlab.configuration import Configuration

Result = TypeVar("Result")
ROOT: Final = Path(__file__).parents[3]
START_SECONDS: Final = 120.0
"""Time for a daemon to answer: a second on an idle machine."""
FAKETIME: Final = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
_MUNGE_KEY: Final = "/etc/munge/munge.key"
_ENVIRONMENT: Final = ("--chdir=/home", "TMPDIR=/tmp", "HOME=/home")
"""Variables that differ from those of the tests, whose folders hosts do not have."""
_DIRECTORIES: Final = (
    "install -d -o munge -g munge -m 755 /run/munge /var/log/munge /var/lib/munge; chmod 700 /etc/munge;"
    " install -d -o slurm -g slurm -m 755 /run/slurm /var/log/slurm /var/lib/slurm /var/lib/slurm/slurmctld;"
    " install -d -m 755 /var/lib/slurm/slurmd /var/lib/gres; chmod 711 /root"
)


@dataclass
class SlurmCluster:
    """A running cluster. The first host is controller, accounting and login node."""

    hosts: tuple[Host, ...]
    shared: Path
    key: bytes = field(default_factory=lambda: secrets.token_bytes(128))

    @property
    def controller(self) -> Host:
        """Return the host with slurmctld, slurmdbd and MariaDB, on which users log in."""
        return self.hosts[0]

    @property
    def nodes(self) -> tuple[Host, ...]:
        """Return the hosts that run slurmd."""
        return self.hosts[1:]

    @property
    def configuration(self) -> Configuration:
        """Return the configuration without faults."""
        return Configuration(
            controller=self.controller.name,
            address=self.controller.address,
            nodes={host.name: host.address for host in self.nodes},
        )

    def start(self) -> None:
        """Start all daemons and wait until every node is idle. Raises RuntimeError."""
        for host in self.hosts:
            self._prepare(host)
        self._database()
        self.start_accounting()
        self.sacctmgr("add", "cluster", configuration.CLUSTER)
        self.sacctmgr("add", "account", "staff", "Description=staff", "Organization=lab")
        self.sacctmgr("add", "user", "root", "Account=staff")
        self.start_controller()
        for host in self.nodes:
            self.start_slurmd(host)
        self.wait_idle()

    def run(self, *command: str, host: Host | None = None, text: str = "") -> str:
        """Run a command on the login node, or on another host, and return its output. Raises RuntimeError with its errors."""
        try:
            return (host or self.controller).run("env", *_ENVIRONMENT, *command, text=text)
        except subprocess.CalledProcessError as error:
            raise RuntimeError(f"{' '.join(command)}: {error.stdout[-2000:]}{error.stderr[-2000:]}") from error

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function as on the login node and return its result: what it starts runs in the namespaces of that host."""
        return namespace_calls.call(self.controller.init(), function)

    def entering(self, *command: str) -> list[str]:
        """Return the words by which this machine starts a command on the login node."""
        spaces = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd=/")
        return ["nsenter", "--target", str(self.controller.init()), *spaces, *command]

    def heal(self) -> None:
        """Take all faults back: give every host its right files, key, clock and daemons, and wait until all nodes are idle."""
        self.configure()
        for daemon, start in (("slurmdbd", self.start_accounting), ("slurmctld", self.start_controller)):
            self.stop(self.controller, daemon)
            start()
        for host in self.nodes:
            self.run("sh", "-c", "tc qdisc del dev eth0 root 2>/dev/null || true", host=host)
            self.stop(host, "slurmd")
            self.start_munge(host)
            self.write(host, "/etc/slurm/gres.conf", configuration.gres())
            self.start_slurmd(host)
        self.run("scancel", "--quiet", "--user=root")  # jobs of a command that a test has killed
        self.resume()

    def resume(self) -> None:
        """Resume all nodes that are down or drained, until all are idle. Raises RuntimeError with their states."""
        names = {host.name for host in self.nodes}

        def idle() -> bool:
            states = self.states()
            for name in names:
                # a slurmd that was killed before its word that an epilog has ended leaves its node completing for a minute
                if states.get(name) == "completing":
                    self.run("sh", "-c", f"scontrol update NodeName={name} State=DOWN Reason=heal || true")
                if states.get(name, "idle").rstrip("*") in ("down", "drained", "draining", "inval"):
                    self.run("sh", "-c", f"scontrol update NodeName={name} State=RESUME || true")
            return states == dict.fromkeys(names, "idle")

        if not until(idle, START_SECONDS, every=0.3):
            raise RuntimeError(f"nodes do not return: {self.states()}\n{self.logs()}")

    def sacctmgr(self, *words: str) -> str:
        """Run sacctmgr without questions."""
        return self.run("sacctmgr", "--immediate", *words)

    def add_user(self, host: Host, name: str, number: int) -> None:
        """Make a user on a host, whose home is in the folder that all hosts share; on the login node SSH takes keys from there."""
        lines = 'grep -q "^$1:" /etc/passwd || echo "$1:*:$2:$2::$3:/bin/sh" >>/etc/passwd; install -d -o "$2" -g "$2" -m 755 "$3"'
        self.run("sh", "-c", lines, "sh", name, str(number), f"{configuration.SHARED}/{name}", host=host)
        if host is self.controller:
            # the first value in the order of file names counts
            keys = "AuthorizedKeysFile /etc/ssh/authorized_keys .ssh/authorized_keys\n"
            self.write(host, "/etc/ssh/sshd_config.d/0-users.conf", keys)
            self.run("pkill", "-HUP", "--oldest", "-x", "sshd", host=host)

    def write(self, host: Host, path: str, text: str, mode: str = "644") -> None:
        """Write a file on a host."""
        self.run("sh", "-c", 'cat > "$1" && chmod "$2" "$1"', "sh", path, mode, host=host, text=text)

    def states(self) -> dict[str, str]:
        """Return the state of each node as sinfo prints it; empty while the controller does not answer."""
        try:
            lines = self.run("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        except RuntimeError:
            return {}
        return dict(line.split() for line in lines if len(line.split()) == 2)

    def wait_idle(self) -> None:
        """Wait until all nodes are idle. Raises RuntimeError with their states."""
        names = {host.name for host in self.nodes}
        if not until(lambda: self.states() == dict.fromkeys(names, "idle"), START_SECONDS, every=0.1):
            raise RuntimeError(f"nodes are not idle: {self.states()}\n{self.logs()}")

    def logs(self) -> str:
        """Return the ends of the daemons' logs."""
        parts = []
        for host in self.hosts:
            with contextlib.suppress(RuntimeError):
                parts.append(self.run("sh", "-c", "tail -n 15 /var/log/slurm/*.log", host=host))
        return "\n".join(parts)

    def start_munge(self, host: Host, key: bytes | None = None, clock: str = "") -> None:
        """Start munged; `key` differs from the cluster's or `clock` is an offset such as `-2h` for faults."""
        self.stop(host, "munged")
        file = Path(f"/proc/{host.init()}/root{_MUNGE_KEY}")
        file.unlink(missing_ok=True)
        file.write_bytes(key or self.key)
        self.run("sh", "-c", f"chown munge:munge {_MUNGE_KEY}; chmod 400 {_MUNGE_KEY}", host=host)
        clock_off = ["env", f"LD_PRELOAD={FAKETIME}", f"FAKETIME={clock}"] if clock else []
        self.run(
            "setpriv", "--reuid=munge", "--regid=munge", "--clear-groups", *clock_off, "/usr/sbin/munged", "--force", host=host
        )

    def start_accounting(self) -> None:
        """Start slurmdbd and wait until it answers."""
        self.run("setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups", "/usr/sbin/slurmdbd", host=self.controller)
        self._wait(lambda: self.sacctmgr("show", "cluster", "--noheader"))

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self.run("setpriv", "--reuid=slurm", "--regid=slurm", "--clear-groups", "/usr/sbin/slurmctld", host=self.controller)
        self._wait(lambda: self.run("scontrol", "ping"))

    def start_slurmd(self, host: Host) -> None:
        """Start slurmd on a host."""
        self.run("/usr/sbin/slurmd", host=host)

    def stop(self, host: Host, daemon: str, signal: str = "KILL") -> None:
        """End a daemon on a host, if it runs, and wait until it is gone."""
        self.run("sh", "-c", f"pkill -{signal} -x {daemon} || true", host=host)
        if not until(lambda: not self.run("sh", "-c", f"pgrep -x {daemon} || true", host=host), START_SECONDS):
            raise RuntimeError(f"{daemon} on {host.name} does not end")

    def configure(self, changed: Configuration | None = None, hosts: Sequence[Host] | None = None) -> None:
        """Write slurm.conf, without faults by default, to these hosts or to all."""
        text = (changed or self.configuration).slurm()
        for host in hosts or self.hosts:
            self.write(host, "/etc/slurm/slurm.conf", text)

    def _prepare(self, host: Host) -> None:
        config = self.configuration
        shared_folder.mount(str(self.shared), configuration.SHARED, host.init())
        for path in dict.fromkeys((str(ROOT), sys.prefix, sys.base_prefix)):
            shared_folder.mount(path, path, host.init())
        self.run("sh", "-c", f"hostname {host.name}; {_DIRECTORIES}", host=host)
        self.write(host, "/etc/hosts", config.hosts())
        self.configure(hosts=[host])
        self.write(host, "/etc/slurm/topology.conf", config.topology())
        self.write(host, "/etc/slurm/cgroup.conf", configuration.CGROUP)
        self.write(host, "/etc/slurm/gres.conf", configuration.gres() if host is not self.controller else "")
        self.write(host, "/etc/slurm/prolog", configuration.PROLOG, "755")
        self.write(host, "/etc/slurm/epilog", configuration.EPILOG, "755")
        self.run("sh", "-c", f"touch {' '.join(configuration.gres_files())}", host=host)
        self.start_munge(host)

    def _database(self) -> None:
        """Start MariaDB with a new data folder and the database of slurmdbd."""
        folder = "/var/lib/mariadb"
        options = (
            *("--user=mysql", f"--datadir={folder}", "--socket=/run/mysqld/mysqld.sock", "--bind-address=127.0.0.1"),
            *("--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=64M"),
            *("--performance-schema=off", "--skip-log-bin", "--log-error=/var/log/mariadb.log"),
        )
        self.run("install", "-d", "-o", "mysql", "/run/mysqld", folder)
        own = ("--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve", "--innodb-log-file-size=8M")
        self.run("mariadb-install-db", f"--datadir={folder}", "--user=mysql", *own)
        self.run("setsid", "--fork", "sh", "-c", 'exec mariadbd "$@" >/dev/null 2>&1 </dev/null', "sh", *options)
        self._wait(lambda: self.run("mariadb", "-e", "select 1"))
        database, user = "slurm_acct_db", "slurm"
        statements = (
            f"create database {database}; create user '{user}'@'localhost' identified by '{configuration.PASSWORD}';"
            f" grant all on {database}.* to '{user}'@'localhost';"
        )
        self.run("mariadb", text=statements)
        self.write(self.controller, "/etc/slurm/slurmdbd.conf", self.configuration.database(), "600")
        self.run("chown", "slurm:slurm", "/etc/slurm/slurmdbd.conf")

    def _wait(self, answer: Callable[[], object]) -> None:
        """Wait until a command succeeds. Raises RuntimeError with its last error and the daemons' logs."""
        problem: list[str] = []

        def answers() -> bool:
            try:
                answer()
            except RuntimeError as error:
                problem[:] = [str(error)]
                return False
            return True

        if not until(answers, START_SECONDS, every=0.1):
            raise RuntimeError(f"{problem[-1]}\n{self.logs()}")


@contextlib.contextmanager
def running(nodes: int) -> Iterator[SlurmCluster]:
    """Make hosts with a cluster of so many nodes, and remove them afterwards."""
    lab.down()
    made = lab.up(nodes + 1, lab.Init.SSHD, lower=Path("/"))
    shared = made.folder / "shared"
    shared.mkdir(mode=0o755)
    cluster = SlurmCluster(made.hosts, shared)
    try:
        cluster.start()
        yield cluster
    finally:
        lab.down()
