"""How to reach an API server: server, CA and credentials from a kubeconfig or from the pod's service account."""

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from steps.errors import BadTask

MAX_BYTES = 1 << 20
_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(Struct, frozen=True, kw_only=True):
    """One API server and how to be let in. Certificates are PEM texts; `insecure` only where the kubeconfig says so."""

    server: str
    token: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    insecure: bool = False


def load(path: Path, context: str = "") -> Access:
    """Read a kubeconfig. Raises BadTask naming what is missing.

    Tokens, token files and client certificates are read here in a few milliseconds; exec plug-ins and auth providers
    go through the `kubernetes` package, whose import costs 0.7 s and is therefore the exception.
    """
    document = _document(path)
    wanted = context or str(document.get("current-context", ""))
    chosen = _named(document, "contexts", wanted, path).get("context", {})
    cluster = _named(document, "clusters", str(chosen.get("cluster", "")), path).get("cluster", {})
    user = _named(document, "users", str(chosen.get("user", "")), path).get("user", {})
    if "exec" in user or "auth-provider" in user:
        return _through_package(path, wanted, cluster)
    if not cluster.get("server"):
        raise BadTask(f"kubeconfig {path}: context {wanted!r} names no server")
    return Access(
        server=str(cluster["server"]).rstrip("/"),
        token=_token(user, path),
        ca=_pem(cluster, "certificate-authority", path),
        certificate=_pem(user, "client-certificate", path),
        key=_pem(user, "client-key", path),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
    )


def in_cluster() -> Access:
    """The pod's own service account. Raises BadTask outside a pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (_ACCOUNT / "token").exists():
        raise BadTask(
            "no kubeconfig given and this is no pod with a service account", hint="name a kubeconfig in the spec's target"
        )
    address = f"[{host}]" if ":" in host else host
    return Access(server=f"https://{address}:{port}", token=(_ACCOUNT / "token").read_text(), ca=(_ACCOUNT / "ca.crt").read_text())


def _document(path: Path) -> dict[str, Any]:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadTask(
            f"kubeconfig {path}: {error.strerror}", hint="the rke2 stage writes it; or name an existing one in the spec"
        ) from error
    if len(raw) > MAX_BYTES:
        raise BadTask(f"kubeconfig {path} has {len(raw)} bytes, limit {MAX_BYTES}")
    import yaml  # a verb that does not reach for a cluster does not pay for it

    try:
        document = yaml.load(raw, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise BadTask(f"kubeconfig {path} is no YAML: {error}") from error
    if not isinstance(document, dict):
        raise BadTask(f"kubeconfig {path} holds no mapping")
    return document


def _named(document: dict[str, Any], section: str, name: str, path: Path) -> dict[str, Any]:
    for entry in document.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    raise BadTask(f"kubeconfig {path}: no entry {name!r} under {section}")


def _token(user: dict[str, Any], path: Path) -> str:
    if user.get("token"):
        return str(user["token"])
    if user.get("tokenFile"):
        return _beside(path, "tokenFile", user["tokenFile"]).strip()
    return ""


def _pem(section: dict[str, Any], field: str, path: Path) -> str:
    data = section.get(f"{field}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise BadTask(f"kubeconfig {path}: {field}-data is no base64 text") from error
    if section.get(field):
        return _beside(path, field, section[field])
    return ""


def _beside(path: Path, field: str, name: Any) -> str:
    """A file that a kubeconfig names, relative to where it lies."""
    try:
        return (path.parent / str(name)).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise BadTask(f"kubeconfig {path}: {field} {name}: {getattr(error, 'strerror', None) or 'no text'}") from error


def _through_package(path: Path, context: str, cluster: dict[str, Any]) -> Access:
    from kubernetes import client, config

    loaded = client.Configuration()
    try:
        config.load_kube_config(str(path), context=context or None, client_configuration=loaded)
    except config.ConfigException as error:
        raise BadTask(
            f"kubeconfig {path}: context {context!r}: {error}", hint="run its plug-in by hand, and log in again"
        ) from error
    kept = loaded.api_key.get("BearerToken") or loaded.api_key.get("authorization") or ""  # the package renamed it in 2026
    bearer = str(kept).removeprefix("Bearer ")
    if not bearer and not loaded.cert_file:  # the package logs what its plug-in said, and goes on without credentials
        raise BadTask(f"kubeconfig {path}: the plug-in of context {context!r} gave no credentials", hint="log in again")
    return Access(
        server=str(loaded.host).rstrip("/"),
        token=bearer,
        ca=_file(loaded.ssl_ca_cert),
        certificate=_file(loaded.cert_file),
        key=_file(loaded.key_file),
        insecure=bool(cluster.get("insecure-skip-tls-verify", False)),
    )


def _file(path: str | None) -> str:
    return Path(path).read_text() if path else ""


def client_certificate_file(access: Access) -> str:
    """A private file with certificate and key, as TLS libraries want one; the caller removes it."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix="bringup-", suffix=".pem")
    with os.fdopen(handle, "w") as file:
        file.write(access.certificate.rstrip("\n") + "\n" + access.key)
    return name
