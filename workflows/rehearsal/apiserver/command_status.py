"""The Status with which a kubelet ends a command that ran in a container."""

from typing import Any


def of_exit(code: int) -> dict[str, Any]:
    """Return the Status of a command that ended with an exit code."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    message = f"command terminated with non-zero exit code: exit status {code}"
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": {"causes": causes}}
