"""The list of commands in `--help`: sections by what a person wants to do, with whole sentences at any width."""

from typing import Any

from typer.core import TyperGroup

SECTIONS = {
    "Cluster": (
        *("init", "validate", "plan", "render", "inventory", "host-keys", "rehearse", "run"),
        *("accept", "add-node", "replace-node", "upgrade", "rollback", "reset"),
    ),
    "Run": ("runs", "status", "watch", "logs", "approve", "cancel", "resume", "quarantine", "schedule", "sweep"),
    "Evidence": ("read", "report", "verify", "timeline", "diff-runs", "pull"),
    "Node images": ("image",),
    "Software stacks": ("stack",),
    "Build factories": ("factory",),
    "Git trees": ("gitops",),
    "Develop": ("doctor", "explain", "schema", "stages", "faults", "lint", "exec", "simulate"),
}
"""Commands of each section, in the order in which they are shown."""
LONGEST = 400
"""Limit of a command's sentence in characters; typer cuts at the width of the terminal, which hides what a command does."""


class SectionedGroup(TyperGroup):
    """A typer group whose help shows whole sentences; the help of `bringup` itself lists commands by section."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order in which they are shown."""
        names = super().list_commands(ctx)
        in_order = [name for section in _sections(ctx).values() for name in section]
        return sorted(names, key=lambda name: in_order.index(name) if name in in_order else len(in_order))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands of the help to typer's `formatter`."""
        rows = {name: self.commands[name].get_short_help_str(LONGEST) for name in self.list_commands(ctx)}
        for title, names in (_sections(ctx) or {"Commands": tuple(rows)}).items():
            with formatter.section(title):
                formatter.write_dl([(name, rows[name]) for name in names])


def _sections(ctx: Any) -> dict[str, tuple[str, ...]]:
    """Return the sections of bringup's own help; empty for a group below it, such as `image`."""
    return SECTIONS if ctx.parent is None else {}
