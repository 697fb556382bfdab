"""GitOps delivery: the rendered Git folder that is published, Argo CD's access to it, and the commit that a run delivered."""

import base64
import binascii
import fnmatch
import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from steps.contract.canonical import digest, digest_bytes

TREE_FILE = "gitops.json"
"""Name of the file in the tasks folder with the rendered Git folder: canonical JSON of `{path in the repository: text}`."""
RECORD = "delivery.json"
"""Name of the file below `runs/RUN/` that records a run's delivery."""
HOST_KEYS = "ssh_known_hosts"
"""Key of the ConfigMap of SSH host keys."""
SECRET_TYPE = "argocd.argoproj.io/secret-type"
"""Label of the Secrets that give Argo CD access to repositories; its value is `repository`."""
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""File names that Kustomize accepts in a folder. Kustomize builds no folder without one of them."""
_REVOKED = "@revoked"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_PINNED = ("environment.yaml", "root.yaml", "roots/")
"""Files of a rendered Git folder that name the revision.

They are not compared if the revision is a commit, because a commit cannot name itself.
"""


class Tree(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Reference to a rendered Git folder: its file in the tasks folder, and the digest of its content (`tree_digest`)."""

    file: str = TREE_FILE
    digest: str


class Publication(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Arguments of verb `publish`: a rendered Git folder goes to `branch` of `repo`.

    `revision` is a tag to create there, or an existing commit to check. Files below the prefixes `owned` are removed if the
    rendered folder lacks them. Files below `kept` belong to the site's people: a rendered file is written only if none exists, and
    existing ones are never compared or removed. `credentials`, `known_hosts` and `ca` (the only CA certificates to trust) are names
    in the secrets folder, empty for none.
    """

    repo: str
    branch: str = "main"
    revision: str
    path: str
    environment: str
    tree: Tree
    owned: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    credentials: str = ""
    known_hosts: str = ""
    ca: str = ""

    @property
    def is_commit(self) -> bool:
        """Return True if the revision is a commit, so that nothing is pushed."""
        return is_commit(self.revision)

    def is_kept(self, path: str) -> bool:
        """Return True if the file at a path belongs to the site's people, so that bringup only ever adds it."""
        return path.startswith(self.kept)

    def is_owned(self, path: str) -> bool:
        """Return True if the file at a path belongs to bringup alone, so that it is removed once it is no longer rendered."""
        return path.startswith(self.owned) and not self.is_kept(path)

    def names_revision(self, path: str) -> bool:
        """Return True if the file at a path names the revision (see `_PINNED`)."""
        return any(path.removeprefix(prefix).startswith(_PINNED) for prefix in self.owned if path.startswith(prefix))


class ConfigMapKeys(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Keys that bringup merge-patches into a ConfigMap; all other keys are left alone.

    The texts are in the rendered Git folder (the file `file` in the tasks folder) at `path`. `keys` maps each key to its
    `text_digest`.
    """

    namespace: str
    name: str = "argocd-cm"
    file: str = TREE_FILE
    path: str
    keys: dict[str, str]


class KnownHosts(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ConfigMap of SSH host keys that Argo CD trusts. `host` (see `ssh_host`) gets the keys of the secret file `file` and no
    others; lines of other hosts are left alone.
    """

    namespace: str
    name: str = "argocd-ssh-known-hosts-cm"
    host: str
    file: str


class ServerCertificates(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ConfigMap of certificates that Argo CD trusts for single servers. `host` gets those of the secret file `file` only."""

    namespace: str
    name: str = "argocd-tls-certs-cm"
    host: str
    file: str


class RepositorySecret(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The Secret that gives Argo CD access to a repository.

    The secret file `credentials` holds `USER:PASSWORD` or a token on one line for https, or a private key for SSH.
    """

    namespace: str
    name: str
    url: str
    credentials: str
    project: str = ""


class Delivered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of `runs/RUN/delivery.json`: the commit of `revision` at the time of delivery. `repo` is without credentials."""

    repo: str
    revision: str
    commit: str
    tree: str
    schema: int = 1


def tree_digest(tree: Mapping[str, str]) -> str:
    """Return `sha256:…` over the canonical JSON of a rendered Git folder."""
    return digest(dict(tree))


def text_digest(text: str) -> str:
    """Return `sha256:…` over a text without trailing newlines. Gate `base_services/delivery` compares a ConfigMap's key by it."""
    return digest_bytes(text.rstrip("\n").encode())


def is_commit(revision: str) -> bool:
    """Return True if a revision is a commit's full id."""
    return bool(_COMMIT.fullmatch(revision))


def key(run: str) -> str:
    """Return the store key of a run's delivery record."""
    return f"runs/{run}/{RECORD}"


def decode(data: bytes) -> Delivered:
    """Read `delivery.json`. Raises msgspec.ValidationError for another form."""
    return msgspec.json.decode(data, type=Delivered)


def decode_tree(data: bytes) -> dict[str, str]:
    """Read `gitops.json`. Raises msgspec.ValidationError for another form."""
    return msgspec.json.decode(data, type=dict[str, str])


def commit_of(records: Iterable[Delivered], repo: str, revision: str, tree: str) -> str:
    """Return the commit of a revision, by the first delivery record of this repository, revision and digest of the rendered folder.

    A full commit id is returned as it is. Empty if no record matches.
    """
    if is_commit(revision):
        return revision
    return next((record.commit for record in records if (record.repo, record.revision, record.tree) == (repo, revision, tree)), "")


# ---- who is trusted ------------------------------------------------------------------------------------------------------------


def server(url: str) -> str:
    """Return the host name of a URL, spelled as in the URL and without user and port, as Argo CD names a server's certificates."""
    return urlsplit(url).netloc.rpartition("@")[2].partition(":")[0]


def ssh_host(url: str) -> str:
    """Return the host of an SSH address as known_hosts files name it: `HOST`, or `[HOST]:PORT` if the port is not 22."""
    if "://" not in url:
        return url.partition(":")[0].rpartition("@")[2].lower()
    parts = urlsplit(url)
    host = parts.hostname or ""
    return host if parts.port in (None, 22) else f"[{host}]:{parts.port}"


class HostKey(Struct, frozen=True, kw_only=True):
    """A key of one host in a known_hosts file.

    `host` may be a pattern; `marker` is empty, `@cert-authority` or `@revoked`.
    """

    host: str
    key: str
    marker: str = ""

    @property
    def text(self) -> str:
        """Return the key as a line of known_hosts without comment."""
        return " ".join(filter(None, (self.marker, self.host, self.key)))

    def lets_in(self, host: str) -> bool:
        """Return True if the line names exactly this host, so that the key is valid for it."""
        return self.host == host and self.marker != _REVOKED

    def may_let_in(self, host: str) -> bool:
        """Return True if the line names this host, by name or by a pattern that matches it."""
        # brackets are literal in `[HOST]:PORT`, but open a character class for fnmatch
        return self.marker != _REVOKED and fnmatch.fnmatchcase(host, self.host.replace("[", "[[]"))


def host_keys(text: str, host: str) -> tuple[HostKey, ...]:
    """Return the keys of a known_hosts file, one entry for each host on a line. `host` is recognised among hashed names as well."""
    return tuple(key for line in text.splitlines() for key in keys_of(line, host))


def keys_of(line: str, host: str) -> tuple[HostKey, ...]:
    """Return the keys of one line of a known_hosts file; none for a comment or a truncated line."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return ()
    names, key = words[0], " ".join(words[1:3])
    # hashed names of other hosts stay as they are: nobody can tell whose they are
    plain = (host if _is_hash_of(name, host) else name if name.startswith("|") else name.lower() for name in names.split(","))
    return tuple(HostKey(host=name, key=key, marker=marker) for name in plain)


def _is_hash_of(name: str, host: str) -> bool:
    """Return True if a hashed name, `|1|SALT|HASH` as `ssh-keygen -H` writes it, is that of a host."""
    parts = name.split("|")
    if len(parts) != 4 or parts[:2] != ["", "1"]:
        return False
    try:
        salt, hashed = (base64.b64decode(part, validate=True) for part in parts[2:])
    except binascii.Error:
        return False
    return hmac.compare_digest(hmac.digest(salt, host.encode(), hashlib.sha1), hashed)


def certificates(text: str) -> tuple[str, ...]:
    """Return the certificates of a PEM text, each as base64 without line breaks."""
    return tuple("".join(body.split()) for body in _CERTIFICATE.findall(text))


def pem(certificate: str) -> str:
    """Return a certificate, given as base64, as PEM."""
    lines = (certificate[at : at + 64] for at in range(0, len(certificate), 64))
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
