"""Values of a site that a verdict needs and an output does not hold: counts, floors, and what is right there."""

from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

Fabric = Literal["infiniband", "ib", "roce", "efa", "ethernet"]


class SiteValues(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Values that a user states with `--expect KEY=VALUE`; None where nothing was stated.

    `expected_gpus` is a number per node, `nodes` must all be usable, and limits hold at the largest size: `busbw_floor_gbps` in
    GB/s as nccl-tests prints it, `bw_floor_gbit` in Gbit/s, `bw_floor_mbs` in MB/s, `latency_ceiling_us` in microseconds.
    """

    nodes: int | None = None
    gpu_nodes: int | None = None
    ranks: int | None = None
    hosts: int | None = None
    expected_gpus: int | None = None
    expected_nvswitches: int | None = None
    expected_nvlinks: int | None = None
    nvlink_expected: bool | None = None
    expected_mig_devices: int | None = None
    expected_mig_config: str | None = None
    replicas_per_gpu: int | None = None
    expected_ports: int | None = None
    expected_rate_gbps: float | None = None
    fabric: Fabric | None = None
    rdma_expected: bool | None = None
    gdr_expected: bool | None = None
    mnnvl_expected: bool | None = None
    expected_clique_size: int | None = None
    largest_bytes: int | None = None
    validation_required: bool | None = None
    busbw_floor_gbps: float | None = None
    bw_floor_gbit: float | None = None
    bw_floor_mbs: float | None = None
    latency_ceiling_us: float | None = None
    powered_down_ok: bool | None = None
    lockfile_versions: tuple[int, ...] | None = None


class WrongSiteValue(ValueError):
    """A key that no reading knows, or a value that does not fit its key."""


_LISTS = frozenset({"lockfile_versions"})
KEYS = tuple(SiteValues.__struct_fields__)
"""Keys of `--expect`, in the order in which they are documented."""
LARGEST_NUMBER = 1e15
"""Largest number that a site can state."""


def parse(pairs: tuple[str, ...]) -> SiteValues:
    """Return the values of texts `KEY=VALUE`. Raises WrongSiteValue."""
    values: dict[str, Any] = {}
    for pair in pairs:
        key, mark, text = pair.partition("=")
        if not mark or key not in KEYS:
            known = ", ".join(KEYS)
            raise WrongSiteValue(f"--expect {pair}: expected KEY=VALUE with one of the keys {known}")
        if key in values:
            raise WrongSiteValue(f"--expect {key} is stated twice: state it once")
        values[key] = tuple(text.split(",")) if key in _LISTS else text.lower() if key == "fabric" else text
    for key, value in values.items():
        try:
            stated = getattr(msgspec.convert({key: value}, SiteValues, strict=False), key)
        except msgspec.ValidationError:
            raise WrongSiteValue(f"--expect {key}={value}: the value does not fit, expected {_form(key)}") from None
        numbers = stated if isinstance(stated, tuple) else (stated,)
        if any(isinstance(number, int | float) and not 0 <= number <= LARGEST_NUMBER for number in numbers):
            raise WrongSiteValue(f"--expect {key}={value}: the value does not fit, expected a number of 0 or more")
    return msgspec.convert(values, SiteValues, strict=False)


class EvaluatedValues:
    """Values of a site that note which of them a reading looked at.

    Readings take it for a `SiteValues` (`values`): a value that was stated and that none of them looked at proves nothing.
    """

    def __init__(self, stated: SiteValues) -> None:
        self._stated = stated
        self._seen: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._stated, name)
        self._seen.add(name)
        return value

    @property
    def values(self) -> SiteValues:
        """Return the values for readings."""
        return cast(SiteValues, self)

    @property
    def unused(self) -> tuple[str, ...]:
        """Return the keys that were stated and that no reading looked at."""
        return tuple(key for key in KEYS if getattr(self._stated, key) is not None and key not in self._seen)


def _form(key: str) -> str:
    annotation = str(SiteValues.__annotations__[key])
    forms = {
        "Literal": "infiniband, roce, efa or ethernet",
        "bool": "true or false",
        "float": "a number",
        "tuple": "whole numbers with commas",
        "int": "a whole number",
    }
    return next((words for name, words in forms.items() if name in annotation), "a text")
