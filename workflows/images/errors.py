"""What goes wrong with a build, as one sentence and what to do about it."""

from steps.contract.exit import ExitCode


class BuildError(ValueError):
    """A recipe, lock, package or machine that gives no image. `hint` says what to do."""

    exit_code: ExitCode = ExitCode.USAGE

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class FetchError(BuildError):
    """A package that is neither in the cache nor to be had just now."""

    exit_code = ExitCode.TEMPORARY
