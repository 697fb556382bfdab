"""Runs an inventory script and passes on what it says, up to so many bytes: Ansible itself would read until memory ends.

    python capped.py MOST_BYTES MARK SCRIPT [ARGUMENT …]

Where the script says more, the file MARK is made, and the whole process group ended: Ansible, the script and its children.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

CHUNK = 1 << 16


def main(most: int, mark: Path, command: list[str]) -> int:
    """The script's exit code; 128 and the signal's number where one ended it, as a shell says it."""
    said = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as script:
        assert script.stdout is not None
        while chunk := script.stdout.read(CHUNK):
            said += len(chunk)
            if said > most:
                mark.touch()
                os.killpg(0, signal.SIGKILL)
            sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
    return script.returncode if script.returncode >= 0 else 128 - script.returncode


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]))
