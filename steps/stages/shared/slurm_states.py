"""Words of Slurm for the state of a node, and if the node takes jobs in it."""

USABLE = frozenset({"idle", "allocated", "mixed", "completing"})
"""Base states in which a node runs or takes jobs."""

HARMLESS = frozenset({"completing", "planned", "undrain", "dynamic_norm", "cloud", "reservation", "reserved"})
"""Additional state words of Slurm that do not keep jobs away from a node."""


DRAINED = frozenset({"drain", "drained", "draining"})
"""Words for a node that somebody, or Slurm itself, has taken out of service; sinfo and scontrol differ."""


def takes_jobs(states: tuple[str, ...], *, powered_down: bool = False) -> bool:
    """Return True if a node in these states runs or takes jobs; with `powered_down` also one that sleeps until a job wants it."""
    asleep = {"powered_down"} if powered_down else set()
    return all(word in USABLE | HARMLESS | asleep for word in states) and any(word in USABLE for word in states)
