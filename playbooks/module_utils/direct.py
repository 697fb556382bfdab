"""HTTP to services of the cluster's own hosts: no proxy stands on that way, whatever the environment says."""

from __future__ import annotations

import ssl
import urllib.request
from typing import Dict, Optional

SECONDS = 5.0
MOST = 1 << 20
"""Bytes of an answer that are read."""


def get(
    url: str,
    context: Optional[ssl.SSLContext] = None,
    headers: Optional[Dict[str, str]] = None,
    seconds: float = SECONDS,
    most: int = MOST,
) -> bytes:
    """The body of an answer. Raises OSError (urllib's errors are) and ValueError."""
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), urllib.request.ProxyHandler({}))
    with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=seconds) as answer:
        return answer.read(most)
