"""Runs an inventory script and passes on what it says, up to so many bytes: Ansible itself would read until memory ends.

    python capped.py MOST_BYTES SECONDS MARK SCRIPT [ARGUMENT …]

Where the script says more, the file MARK is made, and the whole process group ended: Ansible, the script and its children. What it
says of errors counts too. After so many seconds the group is ended as well: whoever asked may be gone by then.
"""

import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

CHUNK = 1 << 16


def main(most: int, seconds: int, mark: Path, command: list[str]) -> int:
    """The script's exit code; 128 and the signal's number where one ended it, as a shell says it."""
    pipe = subprocess.PIPE
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(seconds)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, bufsize=0) as script, selectors.DefaultSelector() as ready:
        for stream, out in ((script.stdout, sys.stdout.buffer), (script.stderr, sys.stderr.buffer)):
            assert stream is not None
            ready.register(stream, selectors.EVENT_READ, out)
        said = 0
        while ready.get_map():
            for key, _ in ready.select():
                said += _passed_on(key, ready)
            if said > most:
                mark.touch()
                os.killpg(0, signal.SIGKILL)
    return script.returncode if script.returncode >= 0 else 128 - script.returncode


def _passed_on(key: selectors.SelectorKey, ready: selectors.BaseSelector) -> int:
    """How many bytes came; at the end of a stream none, and it is waited for no longer."""
    chunk = os.read(key.fd, CHUNK)
    if not chunk:
        ready.unregister(key.fileobj)
    key.data.write(chunk)
    key.data.flush()
    return len(chunk)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
