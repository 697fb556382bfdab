"""Read the secrets that a spec refers to from files and environment variables of this machine.

This is apart from a run's other inputs, because commands about published images read secrets but have no plan.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from steps.clients import certificates
from steps.errors import BadTask
from workflows import user_paths
from workflows.stages.host_access import KNOWN_HOSTS, SecretFile


class SecretMissing(ValueError):
    """Exception: secrets that the spec refers to are missing or unusable; the message says where they were looked for."""

    def __init__(self, sentence: str, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


def read_secrets(files: Sequence[SecretFile], spec_folder: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return file name → content of every secret; an optional file that is missing is left out.

    Raises SecretMissing, which names all that are missing or unusable.
    """
    contents, missing = {}, {}
    for file in files:
        if file.optional and file.path and not (spec_folder / user_paths.expand_home(file.path)).exists():
            continue
        try:
            contents[file.name] = check_secret(file, read_secret(file, spec_folder, environ))
        except SecretMissing as error:
            missing[file] = str(error)
    if missing:
        beside = any(file.path and not user_paths.expand_home(file.path).is_absolute() for file in missing)
        hint = f"relative paths are looked up beside the spec, in {spec_folder.absolute()}" if beside else ""
        head = f"{len(missing)} secrets are missing: " if len(missing) > 1 else ""
        raise SecretMissing(head + "; ".join(missing.values()), hint)
    return contents


def check_secret(file: SecretFile, data: bytes) -> bytes:
    """Return the content unchanged. Raises SecretMissing if it must be a CA certificate but is unusable.

    A run would report that as an outage of the server.
    """
    if file.certificates:
        try:
            certificates.check_certificates(data.decode(errors="replace"), file.name, file.certificates)
        except BadTask as error:
            raise SecretMissing(f"{error}; {error.hint}") from error
    return data


def read_secret(file: SecretFile, spec_folder: Path, environ: Mapping[str, str]) -> bytes:
    """Return the content of a secret from a file or variable of this machine. Raises SecretMissing if that gives no content."""
    if file.variable:
        if file.variable not in environ:
            raise SecretMissing(f"secret {file.name}: the environment variable {file.variable} is not set")
        return environ[file.variable].encode()
    if file.path:
        path = spec_folder / user_paths.expand_home(file.path)
        try:
            return path.read_bytes()
        except OSError as error:
            advice = "; `bringup host-keys` makes it" if file.name == KNOWN_HOSTS else ""
            raise SecretMissing(f"secret {file.name}: {path}: {error.strerror}{advice}") from error
    raise SecretMissing(f"secret {file.name} is a key of the Kubernetes Secret {file.secret}, which only the argo engine can read")
