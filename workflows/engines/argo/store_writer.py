"""Program of a short pod that writes one small file into the run store, atomically.

Its source is passed to the pod as text (`python -c`), so it may use only the standard library.
"""

import base64
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    """Write CONTENT (base64) under KEY into the store BRINGUP_STORE; all are environment variables.

    Nothing is written if one of the keys listed in UNLESS exists.
    """
    store = Path(os.environ["BRINGUP_STORE"])
    if any((store / key).exists() for key in os.environ.get("UNLESS", "").split()):
        return 0
    target = store / os.environ["KEY"]
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    with os.fdopen(handle, "wb") as file:
        os.fchmod(file.fileno(), 0o644)  # mkstemp makes 0600, but pods of other users read the store
        file.write(base64.b64decode(os.environ["CONTENT"]))
        file.flush()
        os.fsync(file.fileno())
    Path(name).replace(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
