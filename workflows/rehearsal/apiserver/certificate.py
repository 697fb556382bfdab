"""A self-signed certificate for loopback, because kubectl and other Go clients send no token over plain HTTP."""

import datetime
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path

LIFETIME = datetime.timedelta(days=365)
_NAMES = ("localhost",)
_ADDRESSES = ("127.0.0.1", "::1")


@dataclass(frozen=True)
class LoopbackCertificate:
    """A certificate and its private key, both PEM; the certificate is its own authority."""

    public: str
    key: str

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a server that listens with this certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory(prefix="bringup-") as folder:  # OpenSSL reads certificates from files only
            public, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
            public.write_text(self.public)
            key.touch(0o600)
            key.write_text(self.key)
            context.load_cert_chain(public, key)
        return context


def self_signed(now: datetime.datetime) -> LoopbackCertificate:
    """Return a new certificate for loopback names and addresses, valid from a minute before `now` (UTC) for `LIFETIME`."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "bringup emulated API server")])
    names = [*(x509.DNSName(host) for host in _NAMES), *(x509.IPAddress(ipaddress.ip_address(host)) for host in _ADDRESSES)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=1))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return LoopbackCertificate(certificate.public_bytes(serialization.Encoding.PEM).decode(), private.decode())
