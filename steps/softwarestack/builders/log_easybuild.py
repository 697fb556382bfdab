"""Read what `eb` did, from its exit code, output and log; pure."""

from steps.softwarestack.builders.package_builder import CommandVerdict
from steps.softwarestack.contract.package_build import BuildFailure


def read(code: int, output: str) -> CommandVerdict:
    if code == 0 and "COMPLETED: Installation ended successfully" in output:
        return CommandVerdict()
    return CommandVerdict(failure=BuildFailure.UNKNOWN, lines=(output[-300:],))
