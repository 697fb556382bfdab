"""The error for an unusable command line, which all use cases share."""


class UsageError(ValueError):
    """Error for options or arguments that have no meaning together; the command line adds the hint `COMMAND --help`."""
