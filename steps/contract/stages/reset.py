"""Stage reset: what RKE2 left on a machine, and that nothing of it is expected."""

from msgspec import Struct

from steps.contract.play import Played


class Traces(Struct, frozen=True, kw_only=True):
    """What is left, by kind; nothing has a default, since a list that was not told would read as empty.

    `processes` (`PID command`), `mounts` (mount points), `links` (network interfaces of CNI plugins), `addresses` (the
    virtual one of the servers, with its interface), `routes` (that drop what goes to pods of this host), `rules` (chains and
    tables of packet filters), `paths`, `units` (of systemd, installed or loaded). `looked` says by kind how many things were
    looked at, those of others included: nothing found proves nothing where nothing could be read.
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


class HostFacts(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `playbooks/library/rke2_traces.py` read on a host at the end of the play. `aside` are files of the site that ours took
    the places of, by where they are kept. `foreign_driver`: an NVIDIA driver that a container loaded is in the kernel;
    `cilium_programs`: BPF programs of Cilium are."""

    traces: Traces
    aside: tuple[str, ...] = ()
    foreign_driver: bool = False
    cilium_programs: bool = False


class HostObservation(Played, frozen=True, kw_only=True, omit_defaults=True):
    """One host after the play: how it ended there, and what was left."""

    facts: HostFacts | None = None


class Observation(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All hosts that a play returned."""

    nodes: tuple[HostObservation, ...]


class Expectation(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """`nodes` are the hosts on which nothing may be left."""

    nodes: tuple[str, ...] = ()
