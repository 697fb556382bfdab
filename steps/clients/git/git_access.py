"""Access to a Git repository: its address, checked, and the credentials and host keys from secret files."""

import os
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from steps import timeouts
from steps.clients import certificates, secret_file
from steps.clients.environment import Environment
from steps.clients.git.errors import ANY, DELIVERY, Keys
from steps.errors import BadTask

_SCHEMES = ("https", "http", "ssh", "git", "file")
_SCP = re.compile(r"(?!-)[\w.-]+@(?!-)[\w.-]+:(?!//)\S+")
_TOKEN_USER = "git"
"""User name for a token alone. Git hosts that take tokens ignore the user name."""


class GitAccess(Struct, frozen=True, kw_only=True):
    """A Git repository and the credentials to reach it: user and password, or the files of a private key and of known hosts.

    `ca` are the only certificates to trust for its server, none for those that this machine trusts. `local` is the bare repository
    that replaces it in a rehearsal; nothing else is used then. `keys` name the spec's fields for advice.
    """

    url: str
    username: str = ""
    password: str = ""
    key: Path | None = None
    known_hosts: Path | None = None
    ca: tuple[str, ...] = ()
    local: Path | None = None
    keys: Keys = ANY

    @property
    def is_ssh(self) -> bool:
        """Return True if the repository is reached over SSH."""
        return self.url.startswith("ssh://") or bool(_SCP.fullmatch(self.url))


def access_of(environment: Environment, url: str, credentials: str = "", known_hosts: str = "", ca: str = "") -> GitAccess:
    """Return the access to a repository. The last three arguments are names of files below the secrets folder.

    Raises BadTask for a bad address or an unusable file.
    """
    if environment.git_root is not None:
        check(url, DELIVERY)
        return GitAccess(url=url, local=local_repository(environment.git_root, url), keys=DELIVERY)
    return of_files(environment.secrets, url, credentials, known_hosts, ca, keys=DELIVERY)


def of_files(folder: Path, url: str, credentials: str = "", known_hosts: str = "", ca: str = "", *, keys: Keys) -> GitAccess:
    """Return the access to a repository with secret files from any folder. `keys`: the spec's fields for advice.

    Raises BadTask for a bad address or an unusable file.
    """
    check(url, keys)
    trusted = certificates.read(folder, ca, keys.of("ca")) if ca else ()
    access = GitAccess(url=url, known_hosts=_file(folder, known_hosts), ca=trusted, keys=keys)
    if not credentials:
        return access
    text = secret_file.text(folder, credentials, keys.of("credentials"))
    if access.is_ssh:
        return msgspec.structs.replace(access, key=_file(folder, credentials))
    username, password = login(text)
    return msgspec.structs.replace(access, username=username, password=password)


def read_certificates(environment: Environment, name: str) -> tuple[str, ...]:
    """Return the certificates of a secret file (see `delivery.certificates`). Raises BadTask for none, or for a private key."""
    return certificates.read(environment.secrets, name, DELIVERY.of("ca"))


def read_credentials(environment: Environment, name: str, field: str = "credentials") -> str:
    """Return the content of a secret file that `field` of the spec names. Raises BadTask, without the content in its message."""
    return secret_file.text(environment.secrets, name, DELIVERY.of(field))


def login(text: str) -> tuple[str, str]:
    """Return user and password of a credential for https: `USER:PASSWORD`, or a token alone."""
    user, colon, password = text.partition(":")
    return (user, password) if colon else (_TOKEN_USER, text)


def check(url: str, keys: Keys) -> None:
    """Raise BadTask for an address that is invalid or contains credentials."""
    if _SCP.fullmatch(url):
        return
    parts = urlsplit(url)
    option = parts.netloc.rpartition("@")[2].startswith("-") or parts.netloc.startswith("-")  # ssh would read it as an option
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.scheme == "file") or option:
        raise BadTask(
            f"{without_credentials(url)!r} is no address of a Git repository", hint=f"use {', '.join(_SCHEMES)}, or git@HOST:PATH"
        )
    if parts.query or parts.fragment:
        raise BadTask(
            f"the address {without_credentials(url)} has a query or a fragment, which no repository has and which may be a token",
            hint=f"remove what stands behind ? or #; credentials go into {keys.of('credentials')}",
        )
    # ssh URLs need a user name; https URLs must not have one
    if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
        raise BadTask(
            f"the address {without_credentials(url)} has credentials in it", hint=f"put them into {keys.of('credentials')}"
        )


def without_credentials(url: str) -> str:
    """Return a repository's address in a form that may be shown.

    It has no credentials, and no query or fragment, which may hold tokens.
    """
    url = re.sub(r"(?<=.)[?#].*", "", url, count=1, flags=re.DOTALL)
    return re.sub(r"(?<=://)[^/@]*@", "", url) if re.match(r"https?://", url) else re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", url)


def local_repository(root: Path, url: str) -> Path:
    """Return the path of the bare repository that replaces an address in a rehearsal: `ROOT/SLUG.git`."""
    plain = without_credentials(url).partition("://")[2] or url
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower().removesuffix(".git")).strip("-")
    return root / f"{slug}.git"


@contextmanager
def ssh_command(access: GitAccess) -> Iterator[str]:
    """Yield the ssh command of a Git client: only the given key, no prompts, host keys verified.

    ssh insists on a key file that only this user can read, which a mounted Secret is not. The key is therefore copied into memory
    as a file that disappears with the process and never reaches a disk.
    """
    options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"ConnectTimeout={timeouts.GIT_CONNECT:.0f}"]
    options += [f"ServerAliveInterval={timeouts.GIT_READ / 4:.0f}", "ServerAliveCountMax=3", "IdentitiesOnly=yes"]
    options += [f"UserKnownHostsFile={access.known_hosts}"] if access.known_hosts else []
    command = ["ssh", "-F", "none", *(part for option in options for part in ("-o", option))]
    if access.key is None:
        yield shlex.join(command)
        return

    with open(os.memfd_create("key"), "wb") as private:
        os.fchmod(private.fileno(), 0o600)
        private.write(access.key.read_bytes().rstrip() + b"\n")
        private.flush()
        yield shlex.join([*command, "-i", f"/proc/{os.getpid()}/fd/{private.fileno()}"])


def _file(folder: Path, name: str) -> Path | None:
    return secret_file.path(folder, name) if name else None
