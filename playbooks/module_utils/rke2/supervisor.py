"""Client of RKE2's supervisor on port 9345: asks whether it is ready, for its CA, and whether it accepts a token."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
import urllib.error
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils import direct_http

PORT = 9345
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

PONG, SILENT, STARTING, REFUSED, STRANGER = "pong", "silent", "starting", "refused", "stranger"
"""States of a supervisor: ready; no answer; not ready yet; token refused; CA differs from the token's."""


def password(token: str) -> str:
    """Return the password in a secure token, `K10<hash of the CA>::<user>:<password>`; a short token is returned whole."""
    return token.rpartition(":")[2] if token.startswith("K10") and "::" in token else token


def ca_hash(token: str) -> str:
    """Return the hash of the cluster's CA in a secure token; empty for a short token, which has none."""
    return token[3:].partition("::")[0] if token.startswith("K10") and "::" in token else ""


def token_refusal(there: str, token: str, joined: str) -> str:
    """Return why a host with token `there` does not accept `token`; empty if it does. It has joined as `joined` (may be empty).

    A server's file cannot change its cluster's token. An agent accepts a new token of its own cluster and none of another, because
    a spec that names somebody else's host would otherwise take it over.
    """
    if not (joined and there and token):
        return ""
    if ca_hash(there) and ca_hash(token) and ca_hash(there) != ca_hash(token):
        return "this host is part of another cluster: correct the hosts in the spec, or reset this one first"
    if joined == "server" and password(there) != password(token):
        return "this host's cluster was made with another token than rke2.join_token: give that one"
    return ""


def host(address: str) -> str:
    """Return an address as URLs have it: IPv6 in brackets."""
    return "[%s]" % address if ":" in address else address


def first_answering(addresses: list) -> str:
    """Return the first of the addresses at which a supervisor answers, empty if none does; all are asked at once."""
    if not addresses:
        return ""
    with ThreadPoolExecutor(len(addresses)) as pool:
        return next((address for address, there in zip(addresses, pool.map(pings, addresses)) if there), "")


def pings(address: str, seconds: float = direct_http.SECONDS) -> bool:
    """Return True if a supervisor answers at this address; an open port alone does not count."""
    try:
        return _get(address, "/ping", _unverified(), seconds=seconds).strip() == b"pong"
    except (OSError, ValueError):
        return False


def state(address: str, token: str) -> tuple:
    """Return a supervisor's state for a token (PONG, SILENT, STARTING, REFUSED or STRANGER) and a sentence about it."""
    where = "https://%s:%d" % (host(address), PORT)
    try:
        if _get(address, "/ping", _unverified()).strip() != b"pong":
            return STARTING, "%s/ping does not answer pong" % where
        certificates = _get(address, "/cacerts", _unverified())
        context = _unverified()
        if ca_hash(token):
            trusted = trusted_ca(certificates, ca_hash(token))
            if not trusted:
                return STRANGER, "%s is not the cluster of the token: its CA is another one" % where
            context = ssl.create_default_context(cadata=trusted)
        answer = _get(address, "/v1-rke2/readyz", context, token=token).strip()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            why = "%s refuses the token (%d): give the cluster's own in rke2.join_token, and have no agent-token on its servers"
            return REFUSED, why % (where, error.code)
        return STARTING, "%s answers %d" % (where, error.code)
    except (OSError, ValueError) as error:
        return SILENT, "%s: %s" % (where, getattr(error, "reason", error))
    if answer == b"ok":
        return PONG, ""
    return STARTING, "%s/v1-rke2/readyz says %s" % (where, answer[:80].decode(errors="replace"))


def trusted_ca(certificates: bytes, wanted: str) -> str:
    """Return those CA certificates (PEM) that the hash `wanted` of a token vouches for; empty if none.

    A CA made by RKE2 is hashed as a whole file. A site's CA comes with its chain and is hashed by the root alone
    (docs.rke2.io/security/token). The other certificates could then be anybody's and are not trusted; the supervisor sends its
    intermediates itself.
    """
    if hashlib.sha256(certificates).hexdigest() == wanted:
        return certificates.decode()
    ders = [ssl.PEM_cert_to_DER_cert(text) for text in CERTIFICATE.findall(certificates.decode())]
    roots = [certificate for certificate in ders if hashlib.sha256(certificate).hexdigest() == wanted]
    return ssl.DER_cert_to_PEM_cert(roots[0]) if roots and len(ders) > 1 else ""


def _unverified() -> ssl.SSLContext:
    """Return a TLS context without verification for the first contact, as RKE2 does; a token's hash then verifies the CA."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _get(address: str, path: str, context: ssl.SSLContext, token: str = "", seconds: float = direct_http.SECONDS) -> bytes:
    login = base64.b64encode(("node:" + password(token)).encode()).decode()
    headers = {"Authorization": "Basic " + login} if token else {}
    return direct_http.get("https://%s:%d%s" % (host(address), PORT, path), context, headers, seconds)
