"""Read first by each Python of a build at another date: begins anew in that environment, which a call in a namespace loses.

libfaketime 0.9.10 makes nonsense of sleeps that end at a time, as Python's do: here they are as long as is asked for.
"""

import json
import os
import select
import sys
import time
from pathlib import Path

ENVIRONMENT = json.loads(Path(__file__).with_name("environment.json").read_text())


def sleep(seconds: float) -> None:
    """Wait, whatever the date."""
    select.select([], [], [], max(seconds, 0))


if not ENVIRONMENT.items() <= os.environ.items():
    os.environ.update(ENVIRONMENT)
    os.execv(sys.executable, sys.orig_argv)
time.sleep = sleep  # type: ignore[assignment]
