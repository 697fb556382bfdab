"""Certificates (PEM) by which a site knows a server, from a secret file: each of them can be read, and no key lies beside."""

from pathlib import Path
from typing import TYPE_CHECKING

from steps.clients import secret_file
from steps.contract.delivery import certificates, pem
from steps.errors import BadTask

if TYPE_CHECKING:
    from ssl import SSLContext

_BEGIN = "-----BEGIN CERTIFICATE-----"


def read(folder: Path, name: str, field: str) -> tuple[str, ...]:
    """The certificates of a secret file, as `delivery.certificates` gives them; `field` of the spec names it. Raises BadTask."""
    return checked(secret_file.text(folder, name, field), name, field)


def checked(text: str, name: str, field: str) -> tuple[str, ...]:
    """The certificates of a text that secret `name` holds. Raises BadTask unless all can be read, or with a key."""
    hint = f"{field} takes certificates in PEM: openssl x509 -in FILE -noout -subject reads a good one"
    if secret_file.has_private_key(text):
        raise BadTask(f"the secret file {name} holds a private key", hint=f"{field} takes certificates only")
    if len(text.encode()) > secret_file.MOST_BYTES:
        raise BadTask(
            f"the secret file {name} is larger than {secret_file.MOST_BYTES} bytes", hint=f"{field} takes the server's CA alone"
        )
    found = certificates(text)
    if not found:
        raise BadTask(f"the secret file {name} holds no certificate", hint=hint)
    unreadable = [place for place, one in enumerate(found, 1) if not _is_certificate(one)]
    if unreadable or len(found) != text.count(_BEGIN):
        which = f"certificate {unreadable[0]}" if unreadable else "a certificate"
        raise BadTask(f"{which} in the secret file {name} is PEM in form only: nobody can read it", hint=hint)
    return found


def trusting(found: tuple[str, ...]) -> "SSLContext":
    """TLS to a server that these certificates alone may sign, also where one of them is no root. As a context, not as `ca_certs` of
    a pool of urllib3, which would hold for a proxy that speaks TLS as well."""
    import ssl

    import urllib3

    context = urllib3.util.ssl_.create_urllib3_context()
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata="".join(map(pem, found)))
    return context


def advice(field: str) -> str:
    """What to do about a server whose certificate is not trusted, where `field` of the spec may name who signs it."""
    return f"give the certificates that sign the server's in {field} (PEM), or correct the server's name"


def _is_certificate(body: str) -> bool:
    """Whether OpenSSL reads it. Each by itself: behind one that is good it passes over others in silence."""
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem(body))
    except ssl.SSLError:
        return False
    return True
