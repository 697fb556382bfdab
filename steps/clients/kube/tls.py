"""TLS to a Kubernetes API server: how it is trusted, by which name it is known, and how we are let in by certificate."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl

    from steps.clients.kube.kubeconfig import Access


class NoCertificate(ValueError):
    """What should be a certificate or a key is none that TLS can use; the message says which and why."""


def context(access: Access) -> ssl.SSLContext | None:
    """None where the server speaks plain http; unverified only where the kubeconfig says so. Raises NoCertificate."""
    if not access.server.startswith("https:"):
        return None
    import ssl

    made = _named(access.name) if access.name else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as kubectl: what the kubeconfig gives is trusted, also where it is no root
    if access.ca:
        _trust(made, access.ca)
    else:
        made.load_default_certs()
    if access.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    if access.certificate:
        _let_in(made, access)
    return made


def _trust(made: ssl.SSLContext, ca: str) -> None:
    import ssl

    try:
        made.load_verify_locations(cadata=ca.encode("ascii", "replace").decode())  # beside the PEM may stand a name with an accent
    except (ssl.SSLError, ValueError) as error:
        raise NoCertificate(f"certificate-authority is no certificate that can be read ({_why(error)})") from error


def _named(name: str) -> ssl.SSLContext:
    """A context that asks for a server's certificate by this name (`tls-server-name`), whatever host it is reached at."""
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
            del server_hostname  # the host at which it is reached
            return super().wrap_socket(sock, server_side, do_handshake_on_connect, suppress_ragged_eofs, name, session)

    return Named(ssl.PROTOCOL_TLS_CLIENT)


def _let_in(made: ssl.SSLContext, access: Access) -> None:
    import ssl

    file = _one_file(access)
    try:
        made.load_cert_chain(file, password="")  # an encrypted key would ask on the terminal otherwise
    except (ssl.SSLError, ValueError) as error:
        raise NoCertificate(f"client-certificate and client-key cannot be used ({_why(error)})") from error
    finally:
        os.unlink(file)


def _one_file(access: Access) -> str:
    """A private file with certificate and key, as TLS libraries want one; the caller removes it."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix="bringup-", suffix=".pem")
    with os.fdopen(handle, "w") as file:
        file.write(access.certificate.rstrip("\n") + "\n" + access.key)
    return name


def _why(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).partition(" (_ssl")[0].replace("_", " ").lower()
