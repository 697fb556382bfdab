"""Prints figures: one line each, with limit and PASS or SHORT."""

import sys

SHORT = "SHORT"
SKIPPED = "NOT MEASURED"
"""Text in place of a figure that this machine cannot measure; `SHORT` ends the line of a figure that misses its limit."""


class Figures:
    """Collects figures; `exit_code` is 1 when one is SHORT."""

    def __init__(self, title: str) -> None:
        self.short = 0
        print(f"# {title}", flush=True)

    def at_most(self, name: str, value: float, limit: float, unit: str) -> None:
        """A figure that must not exceed its limit."""
        self._line(name, value, f"<= {limit:g} {unit}", unit, good=value <= limit)

    def at_least(self, name: str, value: float, limit: float, unit: str) -> None:
        """A figure that must reach its limit."""
        self._line(name, value, f">= {limit:g} {unit}", unit, good=value >= limit)

    def note(self, name: str, text: str) -> None:
        """A figure without a limit."""
        print(f"{name:<52} {text}", flush=True)

    def skip(self, name: str, why: str) -> None:
        """A figure that cannot be measured on this machine."""
        self.note(name, f"{SKIPPED}: {why}")

    def exit(self) -> None:
        """End the command."""
        sys.exit(1 if self.short else 0)

    def _line(self, name: str, value: float, limit: str, unit: str, *, good: bool) -> None:
        self.short += not good
        print(f"{name:<52} {value:10.3f} {unit:<5} {limit:<14} {'PASS' if good else SHORT}", flush=True)
