"""How a Git repository is reached: its address, checked, and what lets us in, read from secret files."""

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
"""User name beside a token alone: the hosts that take tokens look at the token only."""


class GitAccess(Struct, frozen=True, kw_only=True):
    """A repository and what lets us in: user and password, or the files of a private key and of known hosts.

    `ca` are the only certificates that may sign its server's, none for those of this machine. `local` is the bare
    repository that stands for it in a rehearsal; nothing else is used then. `keys` say where the spec names all that.
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
        """Whether it is reached over SSH."""
        return self.url.startswith("ssh://") or bool(_SCP.fullmatch(self.url))


def of(environment: Environment, url: str, credentials: str = "", known_hosts: str = "", ca: str = "") -> GitAccess:
    """The access to a repository; the three names are files below the secrets folder. Raises BadTask."""
    if environment.git_root is not None:
        check(url, DELIVERY)
        return GitAccess(url=url, local=local_repository(environment.git_root, url), keys=DELIVERY)
    return of_files(environment.secrets, url, credentials, known_hosts, ca, keys=DELIVERY)


def of_files(folder: Path, url: str, credentials: str = "", known_hosts: str = "", ca: str = "", *, keys: Keys) -> GitAccess:
    """The same from any folder of secret files; `keys` say where the spec names them. Raises BadTask."""
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
    """The certificates of a secret file, `delivery.certificates`. Raises BadTask where there are none, or a private key beside."""
    return certificates.read(environment.secrets, name, DELIVERY.of("ca"))


def read_credentials(environment: Environment, name: str, field: str = "credentials") -> str:
    """The content of a secret file, which `field` of the delivery names. Raises BadTask; the message has nothing of it."""
    return secret_file.text(environment.secrets, name, DELIVERY.of(field))


def login(text: str) -> tuple[str, str]:
    """User and password of a credential for https: `USER:PASSWORD`, or a token alone."""
    user, colon, password = text.partition(":")
    return (user, password) if colon else (_TOKEN_USER, text)


def check(url: str, keys: Keys) -> None:
    """Raise BadTask for an address that is none, or that has a password in it."""
    if _SCP.fullmatch(url):
        return
    parts = urlsplit(url)
    option = parts.netloc.rpartition("@")[2].startswith("-") or parts.netloc.startswith("-")  # to ssh
    if parts.scheme not in _SCHEMES or not (parts.netloc or parts.scheme == "file") or option:
        raise BadTask(
            f"{without_credentials(url)!r} is no address of a Git repository", hint=f"use {', '.join(_SCHEMES)}, or git@HOST:PATH"
        )
    if parts.query or parts.fragment:
        raise BadTask(
            f"the address {without_credentials(url)} has a query or a fragment, which no repository has and which may be a token",
            hint=f"remove what stands behind ? or #; credentials go into {keys.of('credentials')}",
        )
    if parts.password is not None or (parts.username and parts.scheme in ("http", "https")):
        raise BadTask(
            f"the address {without_credentials(url)} has credentials in it", hint=f"put them into {keys.of('credentials')}"
        )


def without_credentials(url: str) -> str:
    """The address as it may be shown: also without a query or fragment, where some hosts take tokens."""
    url = re.sub(r"(?<=.)[?#].*", "", url, count=1, flags=re.DOTALL)
    return re.sub(r"(?<=://)[^/@]*@", "", url) if re.match(r"https?://", url) else re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1@", url)


def local_repository(root: Path, url: str) -> Path:
    """Where the bare repository lies that stands for an address in a rehearsal: `ROOT/SLUG.git`."""
    plain = without_credentials(url).partition("://")[2] or url
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower().removesuffix(".git")).strip("-")
    return root / f"{slug}.git"


@contextmanager
def ssh_command(access: GitAccess) -> Iterator[str]:
    """The ssh command of a client, while the context lasts: only our key, never a question, host keys verified.

    ssh insists on a file that only we can read, which a mounted Secret is not: the key is copied into memory, which has such a
    file as long as we live. Nothing of it stays on a disk, whatever ends us.
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
