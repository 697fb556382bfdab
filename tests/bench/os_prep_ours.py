"""One play of ours with its gate, as a process of its own: `os_prep_ours.py REQUEST RESULT`, both JSON; 1 unless the gate passes.

A host that nobody can reach is the caller's affair: the gate is asked about all others.
"""

import sys
from pathlib import Path

import msgspec
from real_hosts import profile

from steps.clients.ansible import playing
from steps.contract.host_play import HostStatus, PlayRequest


def main() -> int:
    """Play, judge the hosts that were reached, and keep the result."""
    request = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=PlayRequest)
    result = playing.play(request)
    reached = tuple(outcome for outcome in result.hosts if outcome.status is not HostStatus.UNREACHABLE)
    verdict = profile.judged(msgspec.structs.replace(result, hosts=reached))
    Path(sys.argv[2]).write_bytes(msgspec.json.encode(result))
    if not verdict.is_pass:
        print(verdict.reason, file=sys.stderr)
    return 0 if verdict.is_pass else 1


if __name__ == "__main__":
    sys.exit(main())
