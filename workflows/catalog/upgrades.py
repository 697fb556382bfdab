"""From which release lines a version may be reached: a component that lists its lines moves within one, or to the next (P14)."""

from __future__ import annotations

from collections.abc import Sequence

from workflows.spec.products import numbers


def reachable_from(lines: Sequence[str], version: str) -> tuple[str, ...]:
    """Return the lines that may be upgraded to `version`: its own, and the one before.

    Empty where the component lists no lines, and thus has no rule; a version of no known line is reached from its own alone.
    """
    if not lines:
        return ()
    own = ".".join(str(number) for number in numbers(version)[:2])
    before = lines[lines.index(own) - 1 : lines.index(own)] if own in lines and lines.index(own) else ()
    return (*before, own)


def allowed(installed: str, reachable: Sequence[str]) -> bool:
    """Tell whether an installed version is of one of these lines; without a rule every version is."""
    return not reachable or any(numbers(installed)[:2] == numbers(line)[:2] for line in reachable)
