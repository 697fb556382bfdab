"""RKE2's supervisor on port 9345: whether it answers, whether it is the one that a token means, and whether it takes that token."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
import urllib.error
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils import direct

PORT = 9345
CERTIFICATE = re.compile("-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)

PONG, SILENT, STARTING, REFUSED, STRANGER = "pong", "silent", "starting", "refused", "stranger"
"""What a supervisor shows: it answers and is ready; no answer; not ready yet; it refuses the token; its CA is not the token's."""


def password(token: str) -> str:
    """The part of a token that is the secret: `K10<hash of the CA>::<user>:<password>`, or the whole of a short one."""
    return token.rpartition(":")[2] if token.startswith("K10") and "::" in token else token


def ca_hash(token: str) -> str:
    """The hash of the cluster's CA in a secure token; empty in a short one."""
    return token[3:].partition("::")[0] if token.startswith("K10") and "::" in token else ""


def token_refusal(there: str, given: str, joined: str) -> str:
    """Why a host that has one token does not take another; empty where it may. `joined`: it is a server or agent of a cluster.

    A cluster's token is not changed by a server's file. An agent takes a new one of its own cluster, and none of another: a spec
    that names a host of somebody else's cluster would take it away from there.
    """
    if not (joined and there and given):
        return ""
    if ca_hash(there) and ca_hash(given) and ca_hash(there) != ca_hash(given):
        return "this host is part of another cluster: correct the hosts in the spec, or reset this one first"
    if joined == "server" and password(there) != password(given):
        return "this host's cluster was made with another token than rke2.join_token: give that one"
    return ""


def host(address: str) -> str:
    """An address as it stands in a URL."""
    return "[%s]" % address if ":" in address else address


def answering(addresses: list) -> str:
    """The first of these addresses where a supervisor answers; empty where none does. All are asked at once."""
    if not addresses:
        return ""
    with ThreadPoolExecutor(len(addresses)) as pool:
        return next((address for address, there in zip(addresses, pool.map(pings, addresses)) if there), "")


def pings(address: str, seconds: float = direct.SECONDS) -> bool:
    """Whether a supervisor answers there; an open port alone does not count."""
    try:
        return _get(address, "/ping", _unverified(), seconds=seconds).strip() == b"pong"
    except (OSError, ValueError):
        return False


def state(address: str, token: str) -> tuple:
    """What the supervisor at an address shows to who has this token: one of the words above, and a sentence."""
    where = "https://%s:%d" % (host(address), PORT)
    try:
        if _get(address, "/ping", _unverified()).strip() != b"pong":
            return STARTING, "%s/ping does not answer pong" % where
        certificates = _get(address, "/cacerts", _unverified())
        context = _unverified()
        if ca_hash(token):
            trusted = pinned(certificates, ca_hash(token))
            if not trusted:
                return STRANGER, "%s is not the cluster of the token: its CA is another one" % where
            context = ssl.create_default_context(cadata=trusted)
        said = _get(address, "/v1-rke2/readyz", context, token=token).strip()
    except urllib.error.HTTPError as error:
        if error.code in (401, 403):
            why = "%s refuses the token (%d): give the cluster's own in rke2.join_token, and have no agent-token on its servers"
            return REFUSED, why % (where, error.code)
        return STARTING, "%s answers %d" % (where, error.code)
    except (OSError, ValueError) as error:
        return SILENT, "%s: %s" % (where, getattr(error, "reason", error))
    return (PONG, "") if said == b"ok" else (STARTING, "%s/v1-rke2/readyz says %s" % (where, said[:80].decode(errors="replace")))


def pinned(certificates: bytes, wanted: str) -> str:
    """What of a supervisor's CA certificates (PEM) a token's hash vouches for; empty: nothing.

    A CA that RKE2 made is hashed as its file is, one of the site's, which comes with what it was signed by, as the root alone
    (docs.rke2.io/security/token). That hash says nothing of the others, which anybody could have put beside a root that is not his:
    they are not trusted, and the supervisor itself sends them with its certificate.
    """
    if hashlib.sha256(certificates).hexdigest() == wanted:
        return certificates.decode()
    found = [ssl.PEM_cert_to_DER_cert(text) for text in CERTIFICATE.findall(certificates.decode())]
    roots = [one for one in found if hashlib.sha256(one).hexdigest() == wanted]
    return ssl.DER_cert_to_PEM_cert(roots[0]) if roots and len(found) > 1 else ""


def _unverified() -> ssl.SSLContext:
    """For the first contact alone, as RKE2 itself does: what comes back is then compared with the token's hash."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _get(address: str, path: str, context: ssl.SSLContext, token: str = "", seconds: float = direct.SECONDS) -> bytes:
    login = base64.b64encode(("node:" + password(token)).encode()).decode()
    headers = {"Authorization": "Basic " + login} if token else {}
    return direct.get("https://%s:%d%s" % (host(address), PORT, path), context, headers, seconds)
