"""Unpacks tool output from a check pod's report: gzip in base64 under the key `packed`.

A termination message holds 4 kB, so output is packed. Raw output is sent so that it is parsed by the readers that are tested on
recorded outputs, not by a script in the container.
"""

import base64
import zlib
from typing import Any

KEY = "packed"
MOST = 4 << 20
"""Most bytes of unpacked text, so that a hostile or broken report cannot fill the memory."""


def text(report: dict[str, Any]) -> str:
    """Return the tool's output; empty if the report has none that can be unpacked."""
    packed = report.get(KEY)
    if not isinstance(packed, str):
        return ""
    try:
        raw = base64.b64decode(packed, validate=True)
        # wbits + 16 expects a gzip header; the bound stops a decompression bomb
        return zlib.decompressobj(zlib.MAX_WBITS | 16).decompress(raw, MOST).decode(errors="replace")
    except (ValueError, zlib.error):
        return ""
