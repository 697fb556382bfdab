"""Unpacks tool output from a check pod's report: gzip in base64 under `packed`, because a termination message holds 4 kB.

The raw output travels, so that the readers that are tested on recorded outputs read it, and not a script in a container.
"""

import base64
import zlib
from typing import Any

KEY = "packed"
MOST = 4 << 20
"""Most bytes of unpacked text: a hostile or broken report must not fill the memory."""


def text(report: dict[str, Any]) -> str:
    """The tool's output; empty where the report has none that can be unpacked."""
    packed = report.get(KEY)
    if not isinstance(packed, str):
        return ""
    try:
        raw = base64.b64decode(packed, validate=True)
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(raw, MOST).decode(errors="replace")
    except (ValueError, zlib.error):
        return ""
