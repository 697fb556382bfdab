"""Program of a reader pod: print the files of one run from the run store, as base64 of a gzipped tar, with a digest.

Its source is passed to the pod as text (`python -c`), so it may use only the standard library. A kubelet rotates a log at 10 MiB,
so a pod prints files after the key AFTER until LIMIT bytes are full, and its last line names the key after which the next pod
continues. Secrets are never printed.
"""

import base64
import hashlib
import io
import json
import os
import stat
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

BEGIN, END = "bringup-store begin", "bringup-store end"
LINE = 4096


def regular_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder. A link could lead to secrets, and opening a FIFO would never return."""
    for place, _, names in os.walk(folder, followlinks=False):
        yield from (path for name in names if stat.S_ISREG((path := Path(place, name)).lstat().st_mode))


def without_links(path: str, flags: int) -> int:
    """Open a file that is no link."""
    return os.open(path, flags | os.O_NOFOLLOW)


def main() -> int:
    """Print the files that environment variables select: BRINGUP_STORE, BRINGUP_RUN, AFTER (a key), LIMIT (in bytes)."""
    root, run = Path(os.environ["BRINGUP_STORE"]), os.environ["BRINGUP_RUN"]
    after, limit = os.environ.get("AFTER", ""), int(os.environ["LIMIT"])
    keys = sorted(
        path.relative_to(root).as_posix() for folder in ("runs", "releases") for path in regular_files(root / folder / run)
    )
    # a name that begins with a dot is a file that a step is still writing
    kept = [key for key in keys if key > after and not key.startswith(f"runs/{run}/secrets/") and "/." not in f"/{key}"]
    packed, following = io.BytesIO(), ""
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=6) as archive:
        for number, key in enumerate(kept):
            with open(root / key, "rb", opener=without_links) as file:
                data = file.read()
            entry = tarfile.TarInfo(key)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
            if packed.tell() > limit and number + 1 < len(kept):  # after the file: each pod must bring at least one
                following = key
                break
    data = packed.getvalue()
    text = base64.b64encode(data).decode()
    sys.stdout.write(f"{BEGIN}\n")
    sys.stdout.writelines(f"{text[start : start + LINE]}\n" for start in range(0, len(text), LINE))
    trailer = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "next": following, "files": len(kept)}
    sys.stdout.write(f"{END} {json.dumps(trailer)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
