"""A secret file of a site, read whole where it is small enough to be one; no message says anything of what it holds."""

from pathlib import Path

from steps.errors import BadTask

MOST_BYTES = 65536
"""A larger file is neither a credential nor a CA."""


def path(folder: Path, name: str) -> Path:
    """Where the file lies in the folder of secrets. Raises BadTask for a name that is none."""
    if not name or "/" in name or name.startswith("."):
        raise BadTask(f"{name!r} is no name of a secret file")
    return folder / name


def text(folder: Path, name: str, field: str) -> str:
    """Its content without blanks around; `field` of the spec says where it comes from. Raises BadTask, also where there is none."""
    file, hint = path(folder, name), f"see {field}"
    try:
        found = file.read_text().strip() if file.stat().st_size <= MOST_BYTES else ""
    except (OSError, UnicodeDecodeError) as error:
        raise BadTask(f"the secret file {name} cannot be read: {type(error).__name__}", hint=hint) from error
    if not found:
        raise BadTask(f"the secret file {name} is empty, or larger than {MOST_BYTES} bytes", hint=hint)
    return found


def has_private_key(text: str) -> bool:
    """Whether a private key is in a text, of SSH or in PEM."""
    return "PRIVATE KEY-----" in text
