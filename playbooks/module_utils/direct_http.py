"""HTTP requests to services of the cluster's own hosts, never through a proxy, whatever the environment says."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Dict, Optional

SECONDS = 5.0
MOST = 1 << 20
"""Largest number of bytes read from a response."""


def get(
    url: str,
    context: Optional[ssl.SSLContext] = None,
    headers: Optional[Dict[str, str]] = None,
    seconds: float = SECONDS,
    most: int = MOST,
) -> bytes:
    """Return the body of a response, at most `most` bytes. Raises OSError (urllib's errors are OSErrors) and ValueError."""
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=seconds) as answer:
        return answer.read(most)
