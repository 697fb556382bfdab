"""Checks the certificate of a factory's registry before anything is built, by a TLS handshake in memory as nodes make it later.

Source: https://docs.python.org/3/library/ssl.html#memory-bio-support
"""

import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path

from steps.clients import certificates
from steps.contract.delivery import certificates as bodies_of
from steps.errors import BadTask
from workflows.spec import FactorySpec, Issue
from workflows.spec.pipelines.factory_spec import RegistryTls

RULE, SOURCE = "registry_tls", "https://distribution.github.io/distribution/about/insecure/"
_ROUNDS = 4
"""Turns of both ends; TLS 1.3 needs two, TLS 1.2 three."""


class UnusableCertificate(ValueError):
    """Error for a registry's certificate that nodes would refuse, found before anything is built or removed."""


def require_accepted(spec: FactorySpec, folder: Path) -> None:
    """Raise UnusableCertificate if nodes would refuse the registry's certificate."""
    if issues := list(refusals(spec, folder)):
        raise UnusableCertificate("; ".join(f"{issue.path}: {issue.problem}; {issue.fix}" for issue in issues))


def refusals(spec: FactorySpec, folder: Path) -> Iterator[Issue]:
    """Yield an error if nodes would refuse the registry's certificate. It is checked where its files exist below `folder`."""
    tls = spec.registry.tls
    if tls is None:
        return
    files = [folder / reference.file if reference.file else None for reference in (tls.certificate, tls.key, tls.ca) if reference]
    if any(file is None or not file.is_file() for file in files):
        return
    certificate, key, *ca = [file for file in files if file is not None]
    if problem := _problem(tls, certificate, key, ca[0] if ca else None):
        fix = f"give a certificate for {tls.name} with its key, and in registry.tls.ca the CA that signs it"
        yield Issue(RULE, "error", "registry.tls.certificate", problem, fix, SOURCE)


def _problem(tls: RegistryTls, certificate: Path, key: Path, ca: Path | None) -> str:
    """Return why a client refuses the certificate; empty if it does not."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # without a password OpenSSL would ask at the terminal
        server.load_cert_chain(certificate, key, password=lambda: "")
        text = (ca or certificate).read_text(encoding="utf-8", errors="replace")
        # which CAs nodes trust without `ca` is not known here: then name and dates alone count
        trusted = certificates.check_certificates(text, ca.name, "registry.tls.ca") if ca else bodies_of(text)
        _handshake(certificates.trusting_context(trusted), server, tls.name)
    except ssl.SSLCertVerificationError as error:
        return f"nodes would refuse {certificate.name} for {tls.name}: {error.verify_message}"
    except (ssl.SSLError, OSError, ValueError, BadTask) as error:
        return f"{certificate.name} and {key.name} cannot be used: {error}"
    return ""


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> None:
    """Let a client and a server shake hands, without a network. Raises SSLError if one refuses."""
    client.check_hostname = True
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for _ in range(_ROUNDS):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
