"""Errors of a build, each one sentence with a hint."""

from steps.contract.exit import ExitCode


class BuildError(ValueError):
    """A recipe, lock, package or machine gives no image. `hint` says what to do."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class FetchError(BuildError):
    """A package is not cached and cannot be fetched now."""

    exit_code = ExitCode.TEMPORARY
