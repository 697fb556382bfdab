"""Requirements of the cluster on this machine; each missing one is reported with its remedy."""

from hostlab.tier_needs import TierNeeds

_NEEDS = TierNeeds(
    "tests/slurm/slurm.py",
    {
        "slurmctld": "slurmctld",
        "slurmd": "slurmd",
        "slurmdbd": "slurmdbd",
        "slurmrestd": "slurmrestd",
        "srun": "slurm-client",
        "munged": "munge",
        "mariadbd": "mariadb-server",
        "mpicc": "libopenmpi-dev",
        "mpirun": "openmpi-bin",
        "tc": "iproute2",
        "sshd": "openssh-server",
        "pkill": "procps",
    },
    {"/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1": "libfaketime"},
)
install, missing = _NEEDS.install, _NEEDS.missing
