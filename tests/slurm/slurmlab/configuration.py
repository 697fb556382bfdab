"""Texts of the configuration files of the cluster, as an admin would write them for Slurm 22.05."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

CLUSTER: Final = "lab"
PARTITION: Final = "main"
TYPE: Final = "lab"
"""Type of the GRES: plain files, called after what they are and after no real accelerator."""
PER_NODE: Final = 2
MEMORY: Final = 500
"""RealMemory of a node in MB; several nodes share the memory of this machine."""
SHARED: Final = "/home"
PASSWORD: Final = "only-in-a-namespace"
MARKS: Final = "/run/slurm-marks"
"""Folder on each node where prolog and epilog leave `prolog.JOBID` and `epilog.JOBID`."""

_SLURM: Final = """\
ClusterName={cluster}
SlurmctldHost={controller}({address})
SlurmUser=slurm
SlurmctldPort=6817
SlurmdPort=6818
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=5,batch_sched_delay=0,sched_min_interval=100000,bf_interval=5,defer_batch
TopologyPlugin=topology/tree
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={controller}
AccountingStorageEnforce=associations
AccountingStorageTRES=gres/gpu
GresTypes=gpu
Prolog=/etc/slurm/prolog
Epilog=/etc/slurm/epilog
PrologFlags=Alloc
ReturnToService=1
SlurmdTimeout={silence}
SlurmctldTimeout=30
MessageTimeout=10
TCPTimeout=2
KillWait=2
MinJobAge=300
EpilogMsgTime=0
InactiveLimit=0
{nodes}
PartitionName={partition} Nodes={names} Default=YES MaxTime=60 State=UP
"""
_NODE: Final = (
    "NodeName={name} NodeAddr={address} CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1"
    " RealMemory={memory} Gres={gres} State=UNKNOWN"
)
_DATABASE: Final = """\
AuthType=auth/munge
DbdHost={controller}
DbdPort=6819
SlurmUser=slurm
PidFile=/run/slurm/slurmdbd.pid
LogFile=/var/log/slurm/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_acct_db
"""
CGROUP: Final = "CgroupPlugin=cgroup/v1\n"
"""Hosts have no cgroups: the plugin of version 1 starts without them, and nothing here is constrained by them."""
PROLOG: Final = f"""\
#!/bin/sh
mkdir -p {MARKS}
touch "{MARKS}/prolog.$SLURM_JOB_ID"
"""
EPILOG: Final = PROLOG.replace("prolog", "epilog")


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """Content of the files: controller, nodes with their addresses, and faults that a test writes into them."""

    controller: str
    address: str
    nodes: Mapping[str, str]
    memory: Mapping[str, int] = field(default_factory=dict)
    gres: Mapping[str, str] = field(default_factory=dict)
    silence: int = 6

    def slurm(self) -> str:
        """Return slurm.conf."""
        nodes = "\n".join(
            _NODE.format(
                name=name,
                address=address,
                memory=self.memory.get(name, MEMORY),
                gres=self.gres.get(name, f"gpu:{TYPE}:{PER_NODE}"),
            )
            for name, address in self.nodes.items()
        )
        return _SLURM.format(
            cluster=CLUSTER,
            controller=self.controller,
            address=self.address,
            silence=self.silence,
            nodes=nodes,
            partition=PARTITION,
            names=",".join(self.nodes),
        )

    def database(self) -> str:
        """Return slurmdbd.conf."""
        return _DATABASE.format(controller=self.controller, password=PASSWORD)

    def topology(self) -> str:
        """Return topology.conf: two leaves with half the nodes each, and a spine."""
        names = list(self.nodes)
        leaves = (names[: len(names) // 2], names[len(names) // 2 :])
        lines = [f"SwitchName=leaf{number} Nodes={','.join(part)}" for number, part in enumerate(leaves, 1)]
        return "\n".join([*lines, f"SwitchName=spine Switches={','.join(f'leaf{n}' for n in (1, 2))}", ""])

    def hosts(self) -> str:
        """Return /etc/hosts."""
        rows = {self.controller: self.address, **self.nodes}
        return "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in rows.items())


def gres_files(count: int = PER_NODE) -> Sequence[str]:
    """Return the files that stand for the devices of a node."""
    return [f"/var/lib/gres/gpu{number}" for number in range(count)]


def gres(count: int = PER_NODE) -> str:
    """Return gres.conf of a node with so many devices."""
    return "".join(f"Name=gpu Type={TYPE} File={path}\n" for path in gres_files(count))
