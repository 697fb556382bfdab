"""Operations on a cluster as a command line names them: their hosts, given as ranges, and their stages."""

from collections.abc import Sequence

from steps.contract.runs.operation import BRINGUP, RELEASES, Operation, OperationKind
from workflows.accept import scope
from workflows.app.run_options import UsageError
from workflows.spec import ClusterSpec, range_syntax


def names(texts: Sequence[str], option: str = "--hosts") -> frozenset[str]:
    """Return the hosts of all ranges that an option gives. Raises UsageError for a text that is no range."""
    hosts: set[str] = set()
    for text in texts:
        try:
            hosts.update(range_syntax.expand(text))
        except range_syntax.BadRange as error:
            raise UsageError(f"{option} {text!r}: {error.problem}; {error.fix}") from error
    return frozenset(hosts)


def only(operation: Operation, stages: Sequence[str] = (), until: str = "") -> tuple[str, ...]:
    """Return the stages that narrow a plan: those given, or the only stage of the operation; empty if the spec decides.

    Raises UsageError if an operation with one stage is given stages.
    """
    if operation.kind is OperationKind.ACCEPT:
        if stages or until:
            raise UsageError("--operation accept is stage validation alone: leave out --only and --until")
        return ("validation",)
    if operation.kind not in RELEASES:
        return tuple(stages)
    if stages or until:
        raise UsageError(f"--operation {operation.kind} is stage rke2 alone: leave out --only and --until")
    return ("rke2",)


def scoped(spec: ClusterSpec, operation: Operation) -> Operation:
    """Return an operation with the partners against which an acceptance measures its nodes; others as they are."""
    if operation.kind is not OperationKind.ACCEPT:
        return operation
    return Operation(kind=operation.kind, hosts=scope.with_partners(spec, operation.hosts))


def named(name: str, hosts: Sequence[str], older: str = "") -> Operation:
    """Return the operation that a plan or rehearsal names; bring-up if it names none.

    Raises UsageError for options that do not fit it.
    """
    kinds = {kind.value: kind for kind in OperationKind if kind is not OperationKind.BRINGUP}
    if name and name not in kinds:
        raise UsageError(f"--operation {name!r} is unknown; use {', '.join(kinds)}")
    if not name and (hosts or older):
        raise UsageError("--hosts and --from belong to --operation NAME")
    if name in (OperationKind.ADD_NODE, OperationKind.REPLACE_NODE) and not hosts:
        raise UsageError(f"--operation {name} needs --hosts RANGE")
    if name in RELEASES and hosts:
        raise UsageError(f"--operation {name} takes no --hosts: all machines of a cluster run one release")
    if older and name not in RELEASES:
        raise UsageError("--from belongs to --operation upgrade or rollback")
    return Operation(kind=kinds[name], hosts=names(hosts)) if name else BRINGUP
