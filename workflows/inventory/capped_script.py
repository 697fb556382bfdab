"""Program that runs an inventory script and limits its output, because Ansible itself would read until memory is full.

    python capped_script.py MOST_BYTES SECONDS MARK SCRIPT [ARGUMENT …]

If stdout and stderr together exceed MOST_BYTES, the file MARK is created and the whole process group is killed: Ansible, the script
and its children. After SECONDS the group is killed as well, in case the caller is gone by then.
"""

import os
import selectors
import signal
import subprocess
import sys
from pathlib import Path

CHUNK = 1 << 16


def main(most: int, seconds: int, mark: Path, command: list[str]) -> int:
    """Run the script with limits and return its exit code; 128 plus the signal number if a signal ended it, as shells report it."""
    pipe = subprocess.PIPE
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))
    signal.alarm(seconds)
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, bufsize=0) as script, selectors.DefaultSelector() as ready:
        for stream, out in ((script.stdout, sys.stdout.buffer), (script.stderr, sys.stderr.buffer)):
            assert stream is not None
            ready.register(stream, selectors.EVENT_READ, out)
        size = 0
        while ready.get_map():
            for key, _ in ready.select():
                chunk = os.read(key.fd, CHUNK)
                if not chunk:
                    ready.unregister(key.fileobj)
                size += len(chunk)
                key.data.write(chunk)
                key.data.flush()
            if size > most:
                mark.touch()
                os.killpg(0, signal.SIGKILL)
    return script.returncode if script.returncode >= 0 else 128 - script.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
