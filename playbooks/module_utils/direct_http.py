"""HTTP requests to services on the cluster's own hosts. They never use a proxy, even if the environment names one."""

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
    """Return the first `most` bytes of the response to a GET. Raises OSError (also for HTTP errors and timeouts) and ValueError."""
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=seconds) as answer:
        return answer.read(most)
