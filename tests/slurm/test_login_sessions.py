"""The script that lists who is logged in to a login pod, on a login node with a real sshd: sessions, and programs of users."""

from hostlab.waiting import until
from slurmlab import configuration
from slurmlab.cluster import SlurmCluster

from workflows.stages import manifest_objects

SECONDS = 60
CAROL, DAVE = "carol", "dave"
CONNECT = (
    "umask 077; mkdir -p .ssh; ssh-keygen -q -t ed25519 -N '' -f .ssh/key; cp .ssh/key.pub .ssh/authorized_keys;"
    " exec ssh -n -i .ssh/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null {host} sleep 600"
)


def listed(cluster: SlurmCluster) -> list[str]:
    return cluster.run("sh", "-c", manifest_objects.script("login_sessions.sh")).splitlines()


def as_user(cluster: SlurmCluster, user: str, command: str) -> None:
    """Start a program of a user, which goes on without a terminal."""
    detached = 'exec su - "$1" -s /bin/sh -c "$2" >/dev/null 2>&1 </dev/null'
    cluster.run("setsid", "--fork", "sh", "-c", detached, "sh", user, command)


def test_sessions_and_programs_of_users_are_listed(cluster: SlurmCluster) -> None:
    assert listed(cluster) == ["end"]
    for number, user in enumerate((CAROL, DAVE), 2010):
        cluster.add_user(cluster.controller, user, number)
    try:
        as_user(cluster, CAROL, CONNECT.format(host=cluster.controller.name))
        as_user(cluster, DAVE, "exec sleep 600")
        expected = ["session carol notty", "session dave sleep", "end"]
        assert until(lambda: listed(cluster) == expected, SECONDS, every=0.2), listed(cluster)
    finally:
        cluster.run("sh", "-c", f"pkill -KILL -u {CAROL}; pkill -KILL -u {DAVE}; rm -rf {configuration.SHARED}/{CAROL}/.ssh")
    assert until(lambda: listed(cluster) == ["end"], SECONDS, every=0.2), listed(cluster)
