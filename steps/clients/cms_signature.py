"""Detached CMS signatures (`openssl cms`) over files that iPXE checks with `imgverify` (https://ipxe.org/crypto)."""

import re
import tempfile
from pathlib import Path

from steps import timeouts
from steps.clients import process
from steps.errors import BadTask

_HINT = "publish.boot_signing is one PEM file with a private key, without a passphrase, and its certificate for code signing"
_CERTIFICATE = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_USAGE, _RSA = "Code Signing", "Public Key Algorithm: rsaEncryption"
"""Extended key usage and kind of key that iPXE requires of the certificate, as `openssl x509` names them."""
LEAST_DAYS = 30
"""Days for which the certificate must still hold: nodes boot the published version long after its publication."""


def prove(key: Path) -> None:
    """Raise BadTask unless a file has a certificate of an RSA key for code signing that holds for `LEAST_DAYS` more.

    iPXE checks its time at each boot, and knows signatures by RSA (https://ipxe.org/crypto).
    """
    shown = _openssl("x509", "-in", str(key), "-noout", "-text")
    if shown.code or _USAGE not in shown.out:
        raise BadTask(f"{key.name} has no certificate with the extended key usage codeSigning", hint=_HINT)
    if _RSA not in shown.out:
        raise BadTask(f"the key in {key.name} is no RSA key, and iPXE verifies signatures by RSA alone", hint=_HINT)
    if _openssl("x509", "-in", str(key), "-noout", "-checkend", str(LEAST_DAYS * 86400)).code:
        problem = f"the certificate in {key.name} has expired, or ends within {LEAST_DAYS} days: {end_of(key)}"
        raise BadTask(problem, hint="renew it, since nodes refuse the image from then on, and publish again")


def end_of(certificate: Path) -> str:
    """Return the last moment at which a certificate holds (`2027-11-30 23:59:59Z`). Raises BadTask if it cannot be read."""
    shown = _openssl("x509", "-in", str(certificate), "-noout", "-enddate", "-dateopt", "iso_8601")
    if shown.code:
        raise BadTask(f"{certificate.name} has no certificate: {_last(shown)}", hint=_HINT)
    return shown.out.strip().removeprefix("notAfter=")


def sign(file: Path, key: Path) -> bytes:
    """Return the signature of a file in DER, after it was verified. Raises BadTask if the key cannot sign."""
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        signed, chain = Path(folder, "signature"), Path(folder, "chain")
        # openssl refuses the signer's own certificate, which is the first, among those that it adds
        further = _CERTIFICATE.findall(key.read_bytes())[1:]
        chain.write_bytes(b"\n".join(further))
        added = ("-certfile", str(chain)) if further else ()
        # iPXE knows no signed attributes, so there are none
        form = ("-sign", "-binary", "-noattr", "-outform", "DER", "-in", str(file), "-out", str(signed))
        done = _openssl("cms", *form, "-signer", str(key), *added, "-passin", "pass:")
        if done.code:
            raise BadTask(f"{key.name} cannot sign {file.name}: {_last(done)}", hint=_HINT)
        data = signed.read_bytes()
    if why := verify(file, data, key):
        raise BadTask(f"the signature of {file.name} by {key.name} does not verify: {why}", hint=_HINT)
    return data


def verify(file: Path, signature: bytes, certificate: Path) -> str:
    """Return why a signature is not one of the file by the key of a certificate; empty if it is. Its chain is not checked."""
    with tempfile.TemporaryDirectory(prefix="bringup-") as folder:
        signed = Path(folder, "signature")
        signed.write_bytes(signature)
        form = ("-verify", "-binary", "-inform", "DER", "-in", str(signed), "-content", str(file), "-out", "/dev/null")
        done = _openssl("cms", *form, "-certfile", str(certificate), "-nointern", "-noverify")
    return _last(done) if done.code else ""


def _openssl(*arguments: str) -> process.Done:
    return process.run(["openssl", *arguments], seconds=timeouts.CMS_SIGNATURE)


def _last(done: process.Done) -> str:
    lines = [line for line in done.err.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"openssl ended with {done.code}"
