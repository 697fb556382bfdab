"""Types of commands that are played in containers of simulated pods: the request as a kubelet gets it, and its output."""

from msgspec import Struct


class CommandRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """The body of `POST /pods/exec`: a command in a container."""

    namespace: str
    pod: str
    container: str
    command: tuple[str, ...]


class PlayedOutput(Struct, frozen=True, kw_only=True):
    """The output of a command, its exit code, and the virtual seconds that it takes. `refused`: why no kubelet runs it."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0
    seconds: float = 1.0
    refused: str = ""
