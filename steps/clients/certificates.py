"""Reads CA certificates (PEM) from a site's secret files; each must be readable, and no private key may lie beside them."""

from pathlib import Path
from typing import TYPE_CHECKING

from steps.clients import secret_file
from steps.contract.delivery import certificates, pem
from steps.errors import BadTask

if TYPE_CHECKING:
    from ssl import SSLContext

_BEGIN = "-----BEGIN CERTIFICATE-----"


def read(folder: Path, name: str, field: str) -> tuple[str, ...]:
    """Return the certificates of a secret file in the form of `delivery.certificates`. Raises BadTask.

    `field` is the field of the spec that names the file.
    """
    return check_certificates(secret_file.text(folder, name, field), name, field)


def check_certificates(text: str, name: str, field: str) -> tuple[str, ...]:
    """Return the certificates in a text, which secret file `name` holds, in the form of `delivery.certificates`.

    Raises BadTask if one is unreadable, or if the text has a private key. `field` is the spec's field that names the file.
    """
    hint = f"{field} takes certificates in PEM: openssl x509 -in FILE -noout -subject reads a good one"
    if secret_file.has_private_key(text):
        raise BadTask(f"the secret file {name} holds a private key", hint=f"{field} takes certificates only")
    if len(text.encode()) > secret_file.MOST_BYTES:
        raise BadTask(
            f"the secret file {name} is larger than {secret_file.MOST_BYTES} bytes", hint=f"{field} takes the server's CA alone"
        )
    bodies = certificates(text)
    if not bodies:
        raise BadTask(f"the secret file {name} holds no certificate", hint=hint)
    unreadable = [place for place, body in enumerate(bodies, 1) if not _is_certificate(body)]
    # a block that the pattern misses is damaged, too
    if unreadable or len(bodies) != text.count(_BEGIN):
        which = f"certificate {unreadable[0]}" if unreadable else "a certificate"
        raise BadTask(f"{which} in the secret file {name} is PEM in form only: nobody can read it", hint=hint)
    return bodies


def trusting_context(bodies: tuple[str, ...]) -> "SSLContext":
    """Return a TLS context that trusts only the certificates in `bodies`, even if one of them is no root.

    A context is used because `ca_certs` of a urllib3 pool would also apply to a proxy that speaks TLS.
    """
    import ssl

    import urllib3

    context = urllib3.util.ssl_.create_urllib3_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata="".join(map(pem, bodies)))
    return context


def advice(field: str) -> str:
    """Return a hint for the user about a server whose certificate is not trusted. `field` is the spec's for CA certificates."""
    return f"give the certificates that sign the server's in {field} (PEM), or correct the server's name"


def _is_certificate(body: str) -> bool:
    """Return True if OpenSSL reads the certificate. Each is tried alone: after a good one OpenSSL skips bad ones silently."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem(body))
    except ssl.SSLError:
        return False
    return True
