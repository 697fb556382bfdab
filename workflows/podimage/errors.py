"""Errors of image builds; each message is one sentence, with a hint."""

from steps.contract.exit import ExitCode


class BuildError(ValueError):
    """Error: a recipe, lock, package or machine does not allow a build. `hint` says what to do."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class FetchError(BuildError):
    """Temporary error: a package is not cached and cannot be fetched now."""

    exit_code = ExitCode.TEMPORARY
