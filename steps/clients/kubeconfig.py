"""How to reach an API server: server, CA and credentials from a kubeconfig or from the pod's service account."""

import base64
import binascii
import os
from pathlib import Path

from msgspec import Struct, structs

from steps.clients import kube_tls
from steps.clients.kubeconfig_entries import Entries, Entry
from steps.errors import BadTask

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(Struct, frozen=True, kw_only=True):
    """One API server and how to be let in. Certificates are PEM texts; `insecure` only where the kubeconfig says so.

    `name` is that of the server's certificate where it is not the host of `server`.
    """

    server: str
    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False
    name: str = ""


def load(path: Path, context: str = "") -> Access:
    """Read a kubeconfig. Raises BadTask naming what is missing, of the wrong type, not honoured, or no certificate.

    Tokens, token files and client certificates are read here in a few milliseconds; exec plug-ins and auth providers
    go through the `kubernetes` package, whose import costs 0.7 s and is therefore the exception.
    """
    entries = Entries(path)
    wanted = entries.context(context)
    chosen = entries.named("contexts", wanted)
    cluster = entries.named("clusters", entries.text(chosen, "cluster"))
    user = entries.named("users", entries.text(chosen, "user"))
    reached = Access(
        server=entries.server(cluster),
        ca=_pem(entries, cluster, "certificate-authority"),
        insecure=entries.flag(cluster, "insecure-skip-tls-verify"),
        name=entries.text(cluster, "tls-server-name"),
    )
    admitted = _through_package if user.get("exec") or user.get("auth-provider") else _by_itself
    access = admitted(entries, user, wanted, reached)
    _check_certificates(entries, access)
    return access


def in_cluster() -> Access:
    """The pod's own service account. Raises BadTask outside a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (_ACCOUNT / "token").exists():
        raise BadTask(
            "no kubeconfig given and this is no pod with a service account", hint="name a kubeconfig in the spec's target"
        )
    address = f"[{host}]" if ":" in host else host
    return Access(server=f"https://{address}:{port}", token=(_ACCOUNT / "token").read_text(), ca=(_ACCOUNT / "ca.crt").read_text())


def _by_itself(entries: Entries, user: Entry, _context: str, reached: Access) -> Access:
    return structs.replace(
        reached,
        token=_token(entries, user),
        certificate=_pem(entries, user, "client-certificate"),
        key=_pem(entries, user, "client-key"),
    )


def _token(entries: Entries, user: Entry) -> str:
    if token := entries.text(user, "token"):
        return token
    file = entries.text(user, "tokenFile")
    return _beside(entries, "tokenFile", file).strip() if file else ""


def _pem(entries: Entries, section: Entry, field: str) -> str:
    data = entries.text(section, f"{field}-data")
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError) as error:
            raise entries.wrong(f"{field}-data is no base64 text") from error
    file = entries.text(section, field)
    if not file:
        return ""
    found = _beside(entries, field, file)
    if not found.strip():
        raise entries.wrong(f"{field} {file} is empty")
    return found


def _beside(entries: Entries, field: str, name: str) -> str:
    """A file that a kubeconfig names, relative to where it lies."""
    try:
        return (entries.path.parent / name).read_text()
    except (OSError, ValueError) as error:
        raise entries.wrong(f"{field} {name}: {getattr(error, 'strerror', None) or 'no text'}") from error


def _through_package(entries: Entries, _user: Entry, context: str, reached: Access) -> Access:
    from kubernetes import client, config

    loaded = client.Configuration()
    try:
        config.load_kube_config(str(entries.path), context=context, client_configuration=loaded)
    except (config.ConfigException, ValueError, TypeError, AttributeError) as error:  # the last three where entries are malformed
        raise entries.wrong(f"context {context!r}: {error}", "run its plug-in by hand, and log in again") from error
    kept = loaded.api_key.get("BearerToken") or loaded.api_key.get("authorization") or ""  # the package renamed it in 2026
    bearer = str(kept).removeprefix("Bearer ")
    if not bearer and not loaded.cert_file:  # the package logs what its plug-in said, and goes on without credentials
        raise entries.wrong(f"the plug-in of context {context!r} gave no credentials", "log in again")
    return structs.replace(reached, token=bearer, certificate=_file(loaded.cert_file), key=_file(loaded.key_file))


def _file(path: str | None) -> str:
    return Path(path).read_text() if path else ""


def _check_certificates(entries: Entries, access: Access) -> None:
    if bool(access.certificate) != bool(access.key):
        has, lacks = ("client-certificate", "client-key") if access.certificate else ("client-key", "client-certificate")
        raise entries.wrong(f"it has a {has} and no {lacks}")
    try:
        kube_tls.context(access)
    except kube_tls.NoCertificate as problem:
        raise entries.wrong(str(problem), "give certificates and keys as PEM, as the cluster's admin hands them out") from problem
