"""Short-lived tokens of a ServiceAccount, signed by the cluster's own key: the API server hands out none below ten minutes.

As a program it is an exec plug-in of a kubeconfig: `tokens.py FOLDER NAMESPACE ACCOUNT UID SECONDS` prints an ExecCredential, and
adds a line to `FOLDER/issued`.
"""

import base64
import json
import subprocess
import sys
import time
from pathlib import Path

ISSUER = "https://kubernetes.default.svc"
LEEWAY = 60
"""Seconds by which clocks may differ: the API server takes a token so long after its end."""


def mint(key: Path, namespace: str, account: str, uid: str, seconds: float) -> str:
    """A bound token that is good for so long. The API server remembers one that it has accepted for ten seconds more."""
    now = int(time.time())
    bound = {"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}}
    subject = f"system:serviceaccount:{namespace}:{account}"
    times = {"iat": now - LEEWAY, "nbf": now - LEEWAY, "exp": now + int(seconds) - LEEWAY}
    claims = {"iss": ISSUER, "sub": subject, "aud": [ISSUER], **times, "kubernetes.io": bound}
    said = b".".join(_part(json.dumps(part).encode()) for part in ({"alg": "RS256", "typ": "JWT"}, claims))
    signed = subprocess.run(["openssl", "dgst", "-sha256", "-sign", str(key)], input=said, capture_output=True, check=True)
    return b".".join((said, _part(signed.stdout))).decode()


def _part(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")


def main(arguments: list[str]) -> int:
    """Answer as an exec plug-in."""
    folder, (namespace, account, uid, seconds) = Path(arguments[0]), arguments[1:]
    token = mint(folder / "sa.key", namespace, account, uid, float(seconds))
    with (folder / "issued").open("a") as issued:
        issued.write(f"{token}\n")
    print(json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": token}}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
