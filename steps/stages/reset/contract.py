"""Types of stage reset: the traces of RKE2 on a machine, and the hosts on which none are expected."""

from msgspec import Struct

from steps.contract.host_play import Played


class Traces(Struct, frozen=True, kw_only=True):
    """Traces of RKE2 that were found on a machine, by kind. No field has a default, because an absent list would read as empty.

    `processes` (`PID command`), `mounts` (mount points), `links` (network interfaces of CNI plugins), `addresses` (the servers'
    virtual one, with its interface), `routes` (those that drop packets to this host's pods), `rules` (chains and tables of packet
    filters), `paths`, `units` (of systemd, installed or loaded). `looked` counts by kind how many things were examined, including
    foreign ones: an empty list proves nothing if nothing could be read.
    """

    processes: tuple[str, ...]
    mounts: tuple[str, ...]
    links: tuple[str, ...]
    addresses: tuple[str, ...]
    routes: tuple[str, ...]
    rules: tuple[str, ...]
    paths: tuple[str, ...]
    units: tuple[str, ...]
    looked: dict[str, int]


class HostTraces(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts that `playbooks/library/rke2_traces.py` read on a host at the end of the reset play.

    `aside` are the paths under which replaced files of the site are kept. `foreign_driver`: an NVIDIA driver that a container
    loaded is in the kernel. `cilium_programs`: BPF programs of Cilium are in the kernel.
    """

    traces: Traces
    aside: tuple[str, ...] = ()
    foreign_driver: bool = False
    cilium_programs: bool = False


class ResetHost(Played, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of one host after the reset play: how the play ended there, and the traces of RKE2 that are left."""

    facts: HostTraces | None = None


class ResetObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Observation of gates reset/agents and reset/servers: one entry for each host of the play."""

    nodes: tuple[ResetHost, ...]


class ResetExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Expectation of gates reset/agents and reset/servers: the hosts on which no trace of RKE2 may be left."""

    nodes: tuple[str, ...] = ()
