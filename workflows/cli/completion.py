"""Words that shell completion proposes for arguments and options; typer keeps those that begin with what has been typed.

Heavy modules are imported inside the functions, because every command imports this module.
"""

from collections.abc import Callable, Iterable
from functools import wraps


def _silent(words: Callable[[], Iterable[str]]) -> Callable[[], list[str]]:
    """Return `words` as a completion that proposes nothing on an error, because a shell at its prompt must show no traceback."""

    @wraps(words)
    def proposed() -> list[str]:
        try:
            return list(words())
        except Exception:  # noqa: BLE001 - for instance a BRINGUP_HOME that cannot be read
            return []

    return proposed


@_silent
def runs() -> Iterable[str]:
    """Return the names of this machine's runs for shell completion, the newest first."""
    from workflows.engines.folders import StateFolder

    return reversed(StateFolder.of_environment().runs())


@_silent
def specs() -> Iterable[str]:
    """Return the YAML files of the current folder and the names of examples for shell completion."""
    from pathlib import Path

    from workflows import examples

    return [*sorted(str(path) for path in Path().glob("*.yaml")), *examples.names()]


@_silent
def recipes() -> Iterable[str]:
    """Return the names of the shipped image recipes and the YAML files of the current folder for shell completion."""
    from pathlib import Path

    from workflows.nodeimage import recipe_files

    return [*recipe_files.shipped_names(), *sorted(str(path) for path in Path().glob("*.yaml"))]


@_silent
def locks() -> Iterable[str]:
    """Return the YAML files and lock files of the current folder for shell completion."""
    from pathlib import Path

    return sorted(str(path) for path in Path().iterdir() if path.suffix in {".yaml", ".lock"})


@_silent
def operations() -> Iterable[str]:
    """Return the names of the operations on an existing cluster for shell completion."""
    from steps.contract.runs.operation import OperationKind

    return [kind.value for kind in OperationKind if kind is not OperationKind.BRINGUP]


@_silent
def quarantined_nodes() -> Iterable[str]:
    """Return the nodes that the newest run of this machine quarantined and nobody has released for shell completion."""
    from workflows.app import quarantine_list
    from workflows.engines.folders import StateFolder

    home = StateFolder.of_environment()
    return [node.node for node in quarantine_list.listed(home, home.runs()[-1]) if not node.released]


@_silent
def stages() -> Iterable[str]:
    """Return the stages of all pipelines for shell completion."""
    from workflows.stages import EVERY

    return EVERY


@_silent
def faults() -> Iterable[str]:
    """Return the names of the faults that a rehearsal can inject for shell completion."""
    from workflows.rehearsal.faults import fault_registry

    return [fault.name for fault in fault_registry.faults()]


@_silent
def entries() -> Iterable[str]:
    """Return the fields, rules, stages, faults and gates that `bringup explain` explains for shell completion."""
    from workflows.app import reference

    return reference.words()
