"""GitOps delivery: what is published to Git, how Argo CD is let in, and which commit a run delivered."""

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
"""Name in the tasks folder: canonical JSON of `{path in the repository: text}`."""
RECORD = "delivery.json"
"""Name below `runs/RUN/`: what this run delivered."""
HOST_KEYS = "ssh_known_hosts"
"""Key of the ConfigMap of SSH host keys."""
SECRET_TYPE = "argocd.argoproj.io/secret-type"
"""Label by which Argo CD knows the Secrets that let it into repositories: its value is `repository`."""
KUSTOMIZATIONS = ("kustomization.yaml", "kustomization.yml", "Kustomization")
"""The names by which Kustomize knows what a folder is made of; without one of them it builds nothing."""
_REVOKED = "@revoked"
_COMMIT = re.compile(r"[0-9a-f]{40}")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----([A-Za-z0-9+/=\s]+)-----END CERTIFICATE-----")
_PINNED = ("environment.yaml", "root.yaml", "roots/")
"""Files of an environment that name the revision: a commit cannot name itself, so they are not compared where it is one."""


class Tree(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The tree to publish: a file of the tasks folder, and the digest of what is in it (`tree_digest`)."""

    file: str = TREE_FILE
    digest: str


class Publication(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Arguments of verb `publish`: the tree goes to `branch`; `revision` is a tag to make there, or a commit to find as it is.

    Below the prefixes `owned`, files that the tree lacks are removed. Below `kept`, which belongs to the site's people, the tree's
    file is written only where nothing lies yet; nothing there is ever compared or removed. `credentials`, `known_hosts` and `ca`
    (certificates that the server may be signed by, and then no others) are names below the secrets folder, empty for none.
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
        """Whether the revision is a commit, so that nothing is pushed."""
        return is_commit(self.revision)

    def is_kept(self, path: str) -> bool:
        """Whether a path belongs to the site's people."""
        return path.startswith(self.kept)

    def is_owned(self, path: str) -> bool:
        """Whether a path is ours alone, so that it goes when it is no longer rendered."""
        return path.startswith(self.owned) and not self.is_kept(path)

    def names_revision(self, path: str) -> bool:
        """Whether a path is one of those that name the revision."""
        return any(path.removeprefix(prefix).startswith(_PINNED) for prefix in self.owned if path.startswith(prefix))


class ConfigMapKeys(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Keys of a ConfigMap that are merge-patched; all its other keys are left alone. Their texts stand in the rendered tree, the
    file `file` of the tasks folder, at `path`; `keys` has a digest of each (`text_digest`)."""

    namespace: str
    name: str = "argocd-cm"
    file: str = TREE_FILE
    path: str
    keys: dict[str, str]


class KnownHosts(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ConfigMap of SSH host keys that Argo CD trusts. For `host` (`ssh_host`) it gets the keys of the secret file `file` and no
    others; lines of other hosts belong to others."""

    namespace: str
    name: str = "argocd-ssh-known-hosts-cm"
    host: str
    file: str


class ServerCertificates(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The ConfigMap of certificates that Argo CD trusts, by the name of a server and instead of all others; `host` gets
    those of the secret file `file`."""

    namespace: str
    name: str = "argocd-tls-certs-cm"
    host: str
    file: str


class RepositorySecret(Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The Secret that lets Argo CD into a repository, made from the secret file `credentials`: `USER:PASSWORD` or a token on one
    line for https, a private key for SSH."""

    namespace: str
    name: str
    url: str
    credentials: str
    project: str = ""


class Delivered(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`runs/RUN/delivery.json`: the commit that `revision` meant when it was delivered. `repo` has no credentials in it."""

    repo: str
    revision: str
    commit: str
    tree: str
    schema: int = 1


def tree_digest(tree: Mapping[str, str]) -> str:
    """`sha256:…` over the canonical JSON of a tree."""
    return digest(dict(tree))


def text_digest(text: str) -> str:
    """`sha256:…` over a text without the newlines at its end: what `base_services/delivery` compares of a ConfigMap's key."""
    return digest_bytes(text.rstrip("\n").encode())


def is_commit(revision: str) -> bool:
    """Whether a revision is a commit's full id."""
    return bool(_COMMIT.fullmatch(revision))


def key(run: str) -> str:
    """Where a run keeps what it delivered."""
    return f"runs/{run}/{RECORD}"


def decode(data: bytes) -> Delivered:
    """Read `delivery.json`. Raises msgspec.ValidationError."""
    return msgspec.json.decode(data, type=Delivered)


def decode_tree(data: bytes) -> dict[str, str]:
    """Read `gitops.json`. Raises msgspec.ValidationError."""
    return msgspec.json.decode(data, type=dict[str, str])


def commit_of(records: Iterable[Delivered], repo: str, revision: str, tree: str) -> str:
    """The commit that the first fitting record names for a revision; a commit names itself; empty where nobody knows."""
    if is_commit(revision):
        return revision
    return next((one.commit for one in records if (one.repo, one.revision, one.tree) == (repo, revision, tree)), "")


# ---- who is trusted ------------------------------------------------------------------------------------------------------------


def server(url: str) -> str:
    """The server of a URL as Argo CD names its certificates: without port and user, spelled as it is."""
    return urlsplit(url).netloc.rpartition("@")[2].partition(":")[0]


def ssh_host(url: str) -> str:
    """The host of an SSH address as known_hosts files name it: `HOST`, or `[HOST]:PORT` where the port is not 22."""
    if "://" not in url:
        return url.partition(":")[0].rpartition("@")[2].lower()
    parts = urlsplit(url)
    host = parts.hostname or ""
    return host if parts.port in (None, 22) else f"[{host}]:{parts.port}"


class HostKey(Struct, frozen=True, kw_only=True):
    """One host of one line of a known_hosts file. `host` may be a pattern; `marker` is empty, `@cert-authority` or `@revoked`."""

    host: str
    key: str
    marker: str = ""

    @property
    def text(self) -> str:
        """As a line without comment."""
        return " ".join(filter(None, (self.marker, self.host, self.key)))

    def lets_in(self, host: str) -> bool:
        """Whether it lets this host in by its own name."""
        return self.host == host and self.marker != _REVOKED

    def may_let_in(self, host: str) -> bool:
        """Whether it lets this host in, by name or by pattern."""
        return self.marker != _REVOKED and fnmatch.fnmatchcase(host, self.host.replace("[", "[[]"))


def host_keys(text: str, host: str) -> tuple[HostKey, ...]:
    """The keys of a known_hosts file, host by host; `host` is found among hashed names as well."""
    return tuple(key for line in text.splitlines() for key in keys_of(line, host))


def keys_of(line: str, host: str) -> tuple[HostKey, ...]:
    """The keys of one line of a known_hosts file: none of a comment, or of a line that is cut short."""
    words = line.split()
    marker = words.pop(0) if words and words[0].startswith("@") else ""
    if len(words) < 3 or words[0].startswith("#"):
        return ()
    names, key = words[0], " ".join(words[1:3])
    plain = (host if _is_hash_of(name, host) else name if name.startswith("|") else name.lower() for name in names.split(","))
    return tuple(HostKey(host=name, key=key, marker=marker) for name in plain)


def _is_hash_of(name: str, host: str) -> bool:
    """Whether a hashed name, `|1|SALT|HASH`, is that of a host (ssh-keygen -H)."""
    parts = name.split("|")
    if len(parts) != 4 or parts[:2] != ["", "1"]:
        return False
    try:
        salt, hashed = (base64.b64decode(part, validate=True) for part in parts[2:])
    except binascii.Error:
        return False
    return hmac.compare_digest(hmac.digest(salt, host.encode(), hashlib.sha1), hashed)


def certificates(text: str) -> tuple[str, ...]:
    """The certificates of a PEM text, each as its base64 without line breaks."""
    return tuple("".join(found.split()) for found in _CERTIFICATE.findall(text))


def pem(certificate: str) -> str:
    """A certificate, its base64, as PEM."""
    lines = (certificate[at : at + 64] for at in range(0, len(certificate), 64))
    return "\n".join(["-----BEGIN CERTIFICATE-----", *lines, "-----END CERTIFICATE-----", ""])
