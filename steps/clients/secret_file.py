"""A site's secret file, read whole up to a limit. No message tells its content."""

from pathlib import Path

from steps.errors import BadTask

MOST_BYTES = 65536
"""Size limit of a secret file: a larger one is neither a credential nor a CA."""


def path(folder: Path, name: str) -> Path:
    """Return the path of a secret file. Raises BadTask for an invalid name."""
    if not name or "/" in name or name.startswith("."):
        raise BadTask(f"{name!r} is no name of a secret file")
    return folder / name


def text(folder: Path, name: str, field: str) -> str:
    """Return a secret file's stripped content. Raises BadTask if it is missing, empty or too large; `field` is the spec's field."""
    file, hint = path(folder, name), f"see {field}"
    try:
        content = file.read_text().strip() if file.stat().st_size <= MOST_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadTask(f"the secret file {name} cannot be read: {type(error).__name__}", hint=hint) from error
    if not content:
        raise BadTask(f"the secret file {name} is empty, or larger than {MOST_BYTES} bytes", hint=hint)
    return content


def password(folder: Path, name: str, field: str) -> str:
    """Return the password in a secret file. Raises BadTask as `text` does, and for a private key, which no server may see."""
    content = text(folder, name, field)
    if has_private_key(content):
        raise BadTask(f"the secret file {name} has a private key, which no server may see as a password", hint=f"see {field}")
    return content


def has_private_key(text: str) -> bool:
    """Return True if a text has a private key, of SSH or in PEM."""
    return "PRIVATE KEY-----" in text
