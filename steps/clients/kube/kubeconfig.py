"""How to reach an API server: server, CA and credentials from a kubeconfig or from the pod's service account."""

import base64
import binascii
import os
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, structs

from steps.clients.kube import tls
from steps.clients.kube.kubeconfig_entries import Entries, Entry
from steps.errors import BadTask

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_HOST = "KUBERNETES_SERVICE_HOST"


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


def load(*paths: Path, context: str = "") -> Access:
    """Read a kubeconfig of one file, or of several as `KUBECONFIG` lists them. Raises BadTask naming what is missing, of the wrong
    type, not honoured, or no certificate.

    Tokens, token files and client certificates are read here in a few milliseconds; exec plug-ins and auth providers
    go through the `kubernetes` package, whose import costs 0.7 s and is therefore the exception.
    """
    entries = Entries(paths)
    wanted = entries.context(context)
    chosen = entries.named("contexts", wanted)
    cluster, user = (entries.named(f"{kind}s", chosen.text(kind)) for kind in ("cluster", "user"))
    reached = Access(
        server=cluster.server(),
        ca=_pem(cluster, "certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        name=cluster.text("tls-server-name"),
    )
    has_plugin = user.fields.get("exec") or user.fields.get("auth-provider")
    access = _through_package(entries, wanted, reached) if has_plugin else _by_itself(user, reached)
    _check_certificates(entries, access)
    return access


def is_in_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this is a pod that has a token of its service account."""
    return bool(environ.get(_HOST)) and (_ACCOUNT / "token").exists()


def in_cluster() -> Access:
    """The pod's own service account. Raises BadTask outside a pod."""
    host, port = os.environ.get(_HOST, ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not is_in_cluster(os.environ):
        raise BadTask(
            "no kubeconfig given and this is no pod with a service account", hint="name a kubeconfig in the spec's target"
        )
    address = f"[{host}]" if ":" in host else host
    return Access(server=f"https://{address}:{port}", token=(_ACCOUNT / "token").read_text(), ca=(_ACCOUNT / "ca.crt").read_text())


def _by_itself(user: Entry, reached: Access) -> Access:
    return structs.replace(
        reached,
        token=user.text("token") or user.beside("tokenFile").strip(),
        certificate=_pem(user, "client-certificate"),
        key=_pem(user, "client-key"),
    )


def _pem(section: Entry, field: str) -> str:
    data = section.text(f"{field}-data")
    if data:
        try:
            return base64.b64decode("".join(data.split()), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError, ValueError) as error:
            raise section.wrong(f"{field}-data is no base64 text") from error
    found = section.beside(field)
    if section.text(field) and not found.strip():
        raise section.wrong(f"{field} {section.text(field)} is empty")
    return found


def _through_package(entries: Entries, context: str, reached: Access) -> Access:
    from kubernetes import client, config

    loaded = client.Configuration()
    try:
        config.load_kube_config(os.pathsep.join(map(str, entries.paths)), context=context, client_configuration=loaded)
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
        tls.context(access)
    except tls.NoCertificate as problem:
        raise entries.wrong(str(problem), "give certificates and keys as PEM, as the cluster's admin hands them out") from problem
