"""Kubernetes quantities as numbers, for probes and gates that compare them."""

import re

_QUANTITY = re.compile(r"([0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)(m|k|[KMGTPE]i|[MGTPE])?")
_FACTORS = {"": 1.0, "m": 1e-3, "k": 1e3, **{unit: 1000.0**power for power, unit in enumerate("MGTPE", start=2)}}
_FACTORS |= {f"{unit}i": 1024.0**power for power, unit in enumerate("KMGTPE", start=1)}
"""Suffix of a Kubernetes quantity → factor. Source: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/"""


def quantity(value: str | float) -> float | None:
    """Return a Kubernetes quantity as a number: `500m` → 0.5, `2Gi` → 2147483648.0; None if it is not one."""
    match = _QUANTITY.fullmatch(str(value))
    return float(match[1]) * _FACTORS[match[2] or ""] if match else None


def whole_number(quantity: str) -> int | None:
    """Return an extended resource's quantity as a number; None if it is not a whole number.

    Kubernetes prints thousands with the suffix `k`.
    """
    digits = quantity.removesuffix("k")
    return int(digits) * (1000 if digits != quantity else 1) if digits.isdigit() else None
