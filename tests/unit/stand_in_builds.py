"""A stand-in for `python -m steps`: it builds nothing, leaves a record of its shard in the store, and ends as it was told."""

import os
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

_SCRIPT = """#!/bin/sh
# words: -m steps VERB --task FILE [--shard N]
for name in shards agents; do printf '[]' > "$BRINGUP_OUT/$name"; done
[ "$3" = build ] || exit 0
code=0
echo "$7" >> {log}
for shard in {fail}; do [ "$7" = "$shard" ] && code=65; done
if [ "$7" = "{hold}" ] && [ ! -e {log}.held ]; then
  : > {log}.held
  exec sleep 600
fi
if [ -e {log}.needs/"$7" ]; then
  while read -r need; do
    ended=missing
    [ -e "$BRINGUP_STORE/built/$need" ] && read -r ended < "$BRINGUP_STORE/built/$need"
    [ "$ended" = 0 ] || code=65
  done < {log}.needs/"$7"
fi
[ -d "$BRINGUP_STORE/built" ] || mkdir -p "$BRINGUP_STORE/built"
echo "$code" >> "$BRINGUP_STORE/built/$7"
exit "$code"
"""


def program(folder: Path, fail: Iterable[int] = (), hold: int | None = None) -> Path:
    """Write the program and return its path; builds of the shards `fail` end with 65, all others with 0.

    The first attempt of shard `hold` does not end by itself; `is_held` says whether it has started.
    """
    path = folder / "bin" / "python"
    path.parent.mkdir()
    path.write_text(_SCRIPT.format(log=folder / "started", fail=" ".join(map(str, fail)), hold="" if hold is None else hold))
    path.chmod(0o755)
    return path


def write_needs(folder: Path, needs: Mapping[int, Iterable[int]]) -> None:
    """Make builds end with 65, as real ones do, unless the builds that they need have ended well."""
    place = folder / "started.needs"
    place.mkdir()
    for shard, needed in needs.items():
        (place / str(shard)).write_text("".join(f"{each}\n" for each in needed))


def is_held(folder: Path) -> bool:
    """Return True once the attempt that does not end by itself has started."""
    return (folder / "started.held").exists()


def started(folder: Path) -> list[int]:
    """Return the shards of all builds that were started, in ascending order."""
    log = folder / "started"
    return sorted(int(line) for line in log.read_text().split()) if log.exists() else []


def records(store: Path) -> dict[int, str]:
    """Return the exit codes that builds left in a store by shard, in the order of their attempts."""
    return {int(path.name): path.read_text() for path in (store / "built").iterdir()}


def forget(folder: Path) -> None:
    """Remove the notes about started builds."""
    (folder / "started").unlink()


def seconds_alone(program_path: Path, times: int) -> float:
    """Return the seconds that so many stand-ins take one after another without an engine."""
    environment = {"BRINGUP_OUT": str(program_path.parent), "BRINGUP_STORE": str(program_path.parent), "PATH": os.environ["PATH"]}
    began = time.monotonic()
    for shard in range(times):
        words = [program_path, "-m", "steps", "build", "--task", "none", "--shard", str(shard)]
        subprocess.run(words, check=True, env=environment, cwd=program_path.parent)
    return time.monotonic() - began
