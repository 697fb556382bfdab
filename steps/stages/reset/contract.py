"""Types of stage reset: the traces of RKE2 on a machine, and the hosts on which none are expected."""

from msgspec import Struct

from steps.contract.host_play import Played


class Traces(Struct, frozen=True, kw_only=True):
    """Traces of RKE2 by kind. No field has a default, because an absent list would read as empty.

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
    """Facts that `playbooks/library/rke2_traces.py` read on a host at the end of the play.

    `aside` are the paths under which replaced files of the site are kept. `foreign_driver`: an NVIDIA driver that a container
    loaded is in the kernel. `cilium_programs`: BPF programs of Cilium are in the kernel.
    """

    traces: Traces
    aside: tuple[str, ...] = ()
    foreign_driver: bool = False
    cilium_programs: bool = False


class ResetHost(Played, frozen=True, kw_only=True, omit_defaults=True):
    """A host after the play: how it ended there, and the traces that were left."""

    facts: HostTraces | None = None


class ResetObservation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All hosts that a play returned."""

    nodes: tuple[ResetHost, ...]


class ResetExpectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Hosts on which nothing may be left."""

    nodes: tuple[str, ...] = ()
