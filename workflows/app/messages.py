"""Parts of messages that all use cases share: the error for an unusable command line, and numbers in words."""


class UsageError(ValueError):
    """Error for options or arguments that have no meaning together; the command line adds the hint `COMMAND --help`."""


def count(number: int, thing: str) -> str:
    """Return a number of things in words: `1 error`, `2 errors`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
