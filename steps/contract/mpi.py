"""OSU micro-benchmarks: what one run shows (gpu_stack §8.6)."""

from msgspec import Struct


class OsuRow(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message size in bytes with its first value, in the run's unit. `valid` is what `--validation` says, None without it."""

    size: int
    value: float
    valid: bool | None = None


class OsuRun(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of one benchmark; `unit` is `us` for latencies and `MB/s` for bandwidths."""

    test: str
    version: str
    unit: str = ""
    rows: tuple[OsuRow, ...] = ()

    @property
    def largest(self) -> OsuRow | None:
        """The row of the largest size."""
        return max(self.rows, key=lambda row: row.size, default=None)
