"""Takes known secrets out of what is stored or shown."""

import json
from collections.abc import Iterable
from pathlib import Path

MARK = "[redacted]"
SHORTEST = 6
"""Shorter values would take out ordinary words; such a secret is none."""


class Redactor:
    """Replaces the contents of secret files wherever they turn up, plain or inside JSON strings."""

    def __init__(self, folders: Iterable[Path]) -> None:
        values = {text for folder in folders for path in _files(folder) for text in _texts(path)}
        escaped = {json.dumps(value)[1:-1] for value in values}
        self._values = sorted(values | escaped, key=len, reverse=True)

    def text(self, text: str) -> str:
        """The text without secrets."""
        for value in self._values:
            text = text.replace(value, MARK)
        return text

    def data(self, data: bytes) -> bytes:
        """The bytes (UTF-8) without secrets."""
        return self.text(data.decode()).encode()


def _files(folder: Path) -> Iterable[Path]:
    return (path for path in folder.rglob("*") if path.is_file()) if folder.is_dir() else ()


def _texts(path: Path) -> Iterable[str]:
    try:
        whole = path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ()
    lines = [line.strip() for line in whole.splitlines() if "-----" not in line]
    return [text for text in (whole, *(lines if len(lines) > 1 and "PRIVATE KEY" in whole else ())) if len(text) >= SHORTEST]
