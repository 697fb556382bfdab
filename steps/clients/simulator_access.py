"""HTTP access to the simulator of a rehearsal: plain on this machine, or TLS with a pinned certificate in a pod of home."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import urllib3


def simulator_pool(token: str, pin: str = "") -> "urllib3.PoolManager":
    """Return an HTTP client that sends the simulator's token; with `pin` it accepts only the certificate with that SHA-256 digest.

    The certificate is made for one rehearsal and signed by nobody, so its digest says all that an authority could.
    """
    import urllib3

    headers = {"Authorization": f"Bearer {token}"}
    if not pin:
        return urllib3.PoolManager(1, headers=headers, retries=False)
    return urllib3.PoolManager(
        1, headers=headers, retries=False, assert_fingerprint=pin, assert_hostname=False, cert_reqs="CERT_NONE"
    )
