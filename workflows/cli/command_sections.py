"""The list of commands in `--help`: sections by what a person wants to do, with whole sentences at any width."""

from typing import Any

from typer.core import TyperGroup

SECTIONS = {
    "Cluster": (
        *("init", "validate", "plan", "render", "inventory", "host-keys", "rehearse", "run"),
        *("add-node", "replace-node", "upgrade", "rollback", "reset"),
    ),
    "Run": ("runs", "status", "watch", "logs", "approve", "cancel", "resume", "quarantine", "schedule", "sweep"),
    "Evidence": ("report", "verify", "timeline", "diff-runs", "pull"),
    "Node images": ("image",),
    "Develop": ("doctor", "explain", "schema", "stages", "faults", "exec", "simulate"),
}
"""Commands of each section, in the order in which they are shown."""
OTHERS = "Commands"
"""Section of the commands that no other names, such as those of a sub-command."""
_LONGEST = 400
"""Limit of a command's sentence in characters; typer cuts at the width of the terminal, which hides what a command does."""


class SectionedGroup(TyperGroup):
    """A group of commands whose help lists them by section."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the sections, then the others in the order of their definition."""
        names = super().list_commands(ctx)
        in_order = [name for section in SECTIONS.values() for name in section if name in names]
        return [*in_order, *(name for name in names if name not in in_order)]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the sections; `formatter` is typer's."""
        rows = {name: self.commands[name].get_short_help_str(_LONGEST) for name in self.list_commands(ctx)}
        placed = {name for section in SECTIONS.values() for name in section}
        sections = {**SECTIONS, OTHERS: [name for name in rows if name not in placed]}
        for title, names in sections.items():
            if shown := [(name, rows[name]) for name in names if name in rows]:
                with formatter.section(title):
                    formatter.write_dl(shown)
