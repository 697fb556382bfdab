"""Access to an API server: address, CA and credentials from a kubeconfig or from the pod's service account."""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from steps.clients.kube.kubeconfig_entries import Entries, KubeconfigEntry
from steps.errors import BadTask, NotUnderstood

if TYPE_CHECKING:
    import ssl


_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST = "KUBERNETES_SERVICE_HOST"


class Access(Struct, frozen=True, kw_only=True):
    """Address and credentials of one API server, read from a kubeconfig or a service account.

    Certificates are PEM texts; `insecure` only if the kubeconfig says so. `name` is the name in the server's certificate if it
    differs from the host of `server`.
    """

    server: str
    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False
    name: str = ""


def load(*paths: Path, context: str = "") -> Access:
    """Read a kubeconfig of one file, or of several as `KUBECONFIG` lists them.

    Raises BadTask for missing, invalid or unsupported fields. Tokens, token files and client certificates are read here in a few
    milliseconds. Exec plug-ins and auth providers go through the `kubernetes` package, whose import takes 0.7 s.
    """
    entries = Entries(paths)
    context_name = entries.context(context)
    chosen = entries.named("contexts", context_name)
    cluster, user = (entries.named(f"{kind}s", chosen.text(kind)) for kind in ("cluster", "user"))
    reached = Access(
        server=cluster.server(),
        ca=_pem(cluster, "certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        name=cluster.text("tls-server-name"),
    )
    # the `kubernetes` package takes 0.7 s to import, so only plug-ins go through it
    has_plugin = user.fields.get("exec") or user.fields.get("auth-provider")
    access = _through_package(entries, context_name, reached) if has_plugin else _by_itself(user, reached)
    # before the first request, so that the message names the kubeconfig and not a TLS failure
    _check_certificates(entries, access)
    return access


def is_in_cluster(environ: Mapping[str, str]) -> bool:
    """Return True if this process is in a pod with a token of its service account."""
    return bool(environ.get(_HOST)) and (_ACCOUNT / "token").exists()


def in_cluster() -> Access:
    """Return the access of the pod's own service account. Raises BadTask outside a pod."""
    host, port = os.environ.get(_HOST, ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not is_in_cluster(os.environ):
        raise BadTask(
            "no kubeconfig given and this is no pod with a service account", hint="name a kubeconfig in the spec's target"
        )
    address = f"[{host}]" if ":" in host else host
    return Access(server=f"https://{address}:{port}", token=(_ACCOUNT / "token").read_text(), ca=(_ACCOUNT / "ca.crt").read_text())


def _by_itself(user: KubeconfigEntry, reached: Access) -> Access:
    return structs.replace(
        reached,
        token=user.text("token") or user.beside("tokenFile").strip(),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
    )


def _pem(section: KubeconfigEntry, field: str) -> str:
    data = section.text(f"{field}-data")
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError) as error:
            raise section.wrong(f"{field}-data is no base64 text") from error
    text = section.beside(field)
    if section.text(field) and not text.strip():
        raise section.wrong(f"{field} {section.text(field)} is empty")
    return text


def _through_package(entries: Entries, context: str, reached: Access) -> Access:
    from kubernetes import client, config

    loaded = client.Configuration()
    try:
        config.load_kube_config(os.pathsep.join(map(str, entries.paths)), context=context, client_configuration=loaded)
    except (config.ConfigException, ValueError, TypeError, AttributeError) as error:  # the last three for malformed entries
        raise entries.wrong(f"context {context!r}: {error}", "run its plug-in by hand, and log in again") from error
    token = loaded.api_key.get("BearerToken") or loaded.api_key.get("authorization") or ""  # the package renamed it in 2026
    bearer = str(token).removeprefix("Bearer ")
    if not bearer and not loaded.cert_file:  # the package only logs a failed plug-in and goes on without credentials
        raise entries.wrong(f"the plug-in of context {context!r} gave no credentials", "log in again")
    return structs.replace(reached, token=bearer, certificate=_file(loaded.cert_file), key=_file(loaded.key_file))


def _file(path: str | None) -> str:
    return Path(path).read_text() if path else ""


def _check_certificates(entries: Entries, access: Access) -> None:
    if bool(access.certificate) != bool(access.key):
        present, lacks = ("client-certificate", "client-key") if access.certificate else ("client-key", "client-certificate")
        raise entries.wrong(f"it has a {present} and no {lacks}")
    try:
        tls_context(access)
    except NoCertificate as problem:
        raise entries.wrong(str(problem), "give certificates and keys as PEM, as the cluster's admin hands them out") from problem


class NoCertificate(ValueError):
    """Raised for a certificate or key that TLS cannot use; the message says which and why."""


def tls_context(access: Access) -> ssl.SSLContext | None:
    """Return the TLS context; None for plain http, unverified only if the kubeconfig says so. Raises NoCertificate."""
    if not access.server.startswith("https:"):
        return None
    import ssl

    context = _named(access.name) if access.name else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # like kubectl: trust the given certificates even if they are no roots
    if access.ca:
        _trust(context, access.ca)
    else:
        context.load_default_certs()
    if access.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if access.certificate:
        _let_in(context, access)
    return context


def _trust(context: ssl.SSLContext, ca: str) -> None:
    import ssl

    try:
        context.load_verify_locations(cadata=ca.encode("ascii", "replace").decode())  # text beside the PEM may have accents
    except (ssl.SSLError, ValueError) as error:
        raise NoCertificate(f"certificate-authority is no certificate that can be read ({_why(error)})") from error


def _named(name: str) -> ssl.SSLContext:
    """Return a context that checks a server's certificate for this name (`tls-server-name`), whatever its address is."""
    import socket
    import ssl

    class Named(ssl.SSLContext):
        def wrap_socket(
            self,
            sock: socket.socket,
            server_side: bool = False,
            do_handshake_on_connect: bool = True,
            suppress_ragged_eofs: bool = True,
            server_hostname: str | bytes | None = None,
            session: ssl.SSLSession | None = None,
        ) -> ssl.SSLSocket:
            del server_hostname  # replaced by the name in the certificate
            return super().wrap_socket(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, name, session)

    return Named(ssl.PROTOCOL_TLS_CLIENT)


def _let_in(context: ssl.SSLContext, access: Access) -> None:
    import ssl

    file = _one_file(access)
    try:
        context.load_cert_chain(file, password="")  # without a password OpenSSL would prompt for an encrypted key
    except (ssl.SSLError, ValueError) as error:
        raise NoCertificate(f"client-certificate and client-key cannot be used ({_why(error)})") from error
    finally:
        os.unlink(file)


def _one_file(access: Access) -> str:
    """Write certificate and key into one private file, as TLS libraries need, and return its path; the caller removes it."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix="bringup-", suffix=".pem")
    with os.fdopen(handle, "w") as file:
        file.write(access.certificate.rstrip("\n") + "\n" + access.key)
    return name


def _why(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).partition(" (_ssl")[0].replace("_", " ").lower()


def readdress(kubeconfig: str, server: str, name: str) -> str:
    """Return the kubeconfig for an API server reached at `server`, whose certificate is checked for `name`.

    Raises NotUnderstood if the kubeconfig names no cluster.
    """
    import yaml  # imported here: some verbs need no cluster

    try:
        document = yaml.safe_load(kubeconfig)
        clusters = [row["cluster"] for row in document["clusters"]]
        for cluster in clusters:
            cluster.update({"server": server, "tls-server-name": name})
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NotUnderstood("the kubeconfig of the new cluster is none that names a cluster") from error
    if not clusters:
        raise NotUnderstood("the kubeconfig of the new cluster names no cluster")
    return yaml.safe_dump(document, sort_keys=False, width=1 << 20)
