"""Recognise values that a person still has to write: REPLACE_ME, CHANGEME, <…>, example.com."""

from __future__ import annotations

import re

_PLACEHOLDER = re.compile(
    r"\b(REPLACE[_-]?ME|CHANGE[_-]?ME|FIX[_-]?ME|YOUR[_-][A-Z][A-Z_-]+|TO[_-]BE[_-]REPLACED)\b"
    r"|<<[A-Za-z][\w -]{0,60}>>|^<[A-Za-z][\w .-]{0,60}>$|<(your|my|insert|replace)[\w .-]{0,60}>|^x{4,}$",
    re.IGNORECASE,
)
_EXAMPLE = re.compile(r"(^|[/@.])example\.com(?=[:/]|$)")


def is_placeholder(value: str) -> bool:
    """Return True for a value that holds a placeholder; a template is none."""
    if "{{" in value:
        return False
    return bool(_PLACEHOLDER.search(value) or (_EXAMPLE.search(value) and ("/" in value or ":" in value or "@" in value)))
