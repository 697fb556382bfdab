"""Parses the log of SUNK's syncer; pure.

Its format is not public: lines that speak of errors count, as for the vendor's own check.
"""

import re

from steps.contract.plain_text import line, truncate

MOST_ERRORS, MOST_LINE = 3, 300
_ERROR = re.compile(r"""(?i)\b(?:error|failed|fatal|panic)\b(?!["']?\s*[:=]\s*(?:null|nil|<nil>|none|""|0\b))""")
"""A word for an error, unless a structured line has it as a field without a value."""


def errors(text: str) -> tuple[str, ...]:
    """Return the newest lines of a log that speak of an error, as plain lines."""
    wrong = [truncate(line(entry), MOST_LINE) for entry in text.splitlines() if _ERROR.search(entry)]
    return tuple(wrong[-MOST_ERRORS:])
