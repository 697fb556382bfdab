"""How fast virtual time runs beside real controllers: they live in wall time, and on a busy machine they need more of it.

A gate's deadline passes in virtual time. If that followed the wall at a fixed speed, ten minutes would be twenty seconds at speed
30, and controllers that got no processor for so long would fail a healthy cluster. So time slows down while somebody else changes
what is simulated. Leases do not count: leaders renew theirs every two seconds, whatever goes on, and time would never be fast.
"""

from __future__ import annotations

UNREST = 0.2
"""Share of the speed at which time passes while others change something."""

REST = 1.0
"""Wall seconds without a change by others, after which they have nothing to do, or wait for time to pass."""

LONGEST = 0.5
"""Wall seconds that count for one step at most: who comes late to the next one has got no processor either."""


class Pace:
    """Virtual seconds for each wall second: never fewer than one, never more than `speed`."""

    def __init__(self, speed: float, *, patient: bool) -> None:
        self._speed = speed
        self._patient = patient
        self._others = 0
        self._quiet = 0.0

    def seconds(self, wall: float, others: int) -> float:
        """What virtual time moves by after `wall` seconds. `others` counts the looks that found changes by somebody else."""
        if not self._patient or self._speed <= 1:
            return wall * self._speed
        self._quiet = self._quiet + min(wall, LONGEST) if others == self._others else 0.0
        self._others = others
        share = 1.0 if self._quiet >= REST else UNREST
        return max(wall, min(wall, LONGEST) * self._speed * share)
