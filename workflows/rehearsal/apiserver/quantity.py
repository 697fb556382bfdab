"""Resource quantities in the canonical form in which an API server gives them back (apimachinery `api/resource`)."""

import re
from decimal import ROUND_CEILING, Decimal

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([+-]?\d+))")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {-9: "n", -6: "u", -3: "m", 0: "", 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E"}
_EXPONENTS = {suffix: exponent for exponent, suffix in _DECIMAL.items()}
_PLAIN = re.compile(r"0|[1-9]\d{0,2}")


def canonical(value: str | int | float) -> str:
    """`"1000m"` → `"1"`, `0.5` → `"500m"`, `"2048Mi"` → `"2Gi"`.

    Raises:
        ValueError: not a quantity.
    """
    text = str(value)
    if _PLAIN.fullmatch(text):
        return text
    form = _FORM.fullmatch(text)
    if not form:
        raise ValueError("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")
    number, binary, suffix, exponent = form.groups()
    if binary:
        return _binary(Decimal(number) * 1024 ** _BINARY.index(binary))
    if exponent is not None:
        return _decimal(Decimal(number).scaleb(int(exponent)), scientific=True)
    return _decimal(Decimal(number).scaleb(_EXPONENTS[suffix]), scientific=False)


def _binary(amount: Decimal) -> str:
    if amount != amount.to_integral_value() or abs(amount) < 1024:
        return _decimal(amount, scientific=False)
    whole, power = int(amount), 0
    while whole and whole % 1024 == 0 and power < len(_BINARY) - 1:
        whole, power = whole // 1024, power + 1
    return f"{whole}{_BINARY[power]}"


def _decimal(amount: Decimal, *, scientific: bool) -> str:
    whole = int(amount.scaleb(9).to_integral_value(ROUND_CEILING))
    exponent = -9
    while whole and whole % 1000 == 0 and exponent < 18:
        whole, exponent = whole // 1000, exponent + 3
    if not whole:
        return "0"
    if scientific:
        return f"{whole}e{exponent}" if exponent else str(whole)
    return f"{whole}{_DECIMAL[exponent]}"
