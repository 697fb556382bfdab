"""A script that a task runs in a container of the platform until it succeeds: settings that only a tool in there can change."""

from msgspec import Struct


class PodScript(Struct, frozen=True, kw_only=True):
    """A shell script with its variables, and the container where it runs.

    Each line of output that begins with `changed ` is recorded as a change. `name` tells in records what the script sets.
    """

    name: str
    namespace: str
    pod: str
    container: str
    script: str
    variables: dict[str, str] = {}

    @property
    def words(self) -> tuple[str, ...]:
        """Return the command as words; `env` sets the variables, so that no shell reads their values."""
        variables = {"CHECK": self.name} | self.variables
        return ("env", *(f"{key}={value}" for key, value in variables.items()), "/bin/sh", "-c", self.script)
